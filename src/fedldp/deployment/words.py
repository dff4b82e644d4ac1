"""Ten words in place of a SHA-256 digest, for two people to compare by telephone.

A word stands for 10 bits, so ten words stand for 100. Finding a second file with the same words as
a given one takes about 2^100 tries; making two files with the same words takes about 2^50. Each try
takes 2^19 steps of SHA-256, because PBKDF2 is applied to the digest first, so making the two files
takes 2^69 steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

WORDS = 10
_STEPS = 1 << 18
_BITS = 10
_SALT = b"fedldp words\x01"


def words_of(digest: bytes) -> str:
    """Return the ten words of a digest, separated by spaces; takes about a tenth of a second."""
    stretched = hashlib.pbkdf2_hmac("sha256", digest, _SALT, _STEPS, dklen=32)
    left = int.from_bytes(stretched)
    found = []
    for _ in range(WORDS):
        left, place = divmod(left, len(_LIST))
        found.append(_LIST[place])
    return " ".join(found)


def unknown_words(typed: Sequence[str]) -> list[str]:
    """Return the typed words that are not in the list, ignoring case."""
    return [word for word in typed if word.lower() not in _LIST]


_TEXT = """
abbey accent acid acorn acrobat action actor adapt address admiral advice afraid agent agree
airport alarm album alcove alert algebra alive almond alpine amber anchor angel animal ankle
answer antique anvil apple april apron arcade arch area arena armour army arrow artist ash
aspect asteroid atlas attic auburn august autumn avenue avocado axle baby bacon badge bagel
bakery balcony ball bamboo banana bandage banjo barber basket bath battery bazaar beam beard
beauty bedroom beehive bell bench bicycle big bingo biology bird biscuit bison bitter black
blade blend blizzard blossom blue bobcat body boil bold bonfire book border boss bottle bounce
bowl boxer bracket brain brave breeze brick bridge bronze broom brother brush bubble bucket
budget buffalo bugle builder bulb bumper bundle bunker burger bus butter buzzer cabin cable
cactus cage cake calm camel canal candle canyon cape captain caravan carbon cargo carpet cartoon
castle cat cavern cedar ceiling celery cement centre chain chalk chapter charm chase cheese
cherry chess chicken chief chimney choir chop church cider cinema circle citizen city clarinet
clay clean clever cliff climb clock cloth cloud clover coach coast cobra cocoa coffee coil cold
college comet compass concert copper coral corner cosmic cotton cougar country cousin cowboy
crab cradle crane crayon cream cricket crimson crisp crocus crowd crumb crystal cube cuckoo
cucumber culture cupboard curtain cushion cycle cypress dagger daily daisy dancer danger dark
date daughter dawn day decade deck degree delta demand denim dentist deputy detail develop dial
diamond diary diesel digital dinner diploma direct dish distant divide doctor dog dollar dolphin
domino donkey door dormant double dozen dragon drama dream dress drift drink drone drum dry duck
dune dwarf dynamo eagle early earth easel east easy echo eclipse edge edit effort eight elbow
elder elegant elk embassy emerald empty enamel end energy engine enjoy enough enter envelope
epoch era essay estate eternal evening example exit expert eyebrow fabric face factory falcon
family fancy farmer fashion father feather february fence fern festival fever fiction fiddle
field fifty figure film finger fire first fish five flag flame flavour fleet flight flint float
flute focus fog folder follow forest forget fork fossil fountain fox fragile frame freedom fresh
friend frog front frozen fruit fudge fuel furnish future gadget galaxy gallery game garden
garlic gather gaze geology gesture geyser giant gift ginger giraffe give glacier glad glass
glimpse globe glory glove glue goal goat goblin golden golf goose gorilla gospel grain grape
gravity green grid grocery group grow guard guitar gulf gum gymnast gypsum halibut hammer hand
harbour harvest hat hawk hazel head health heaven hedge height helmet herald heritage hero
hexagon hickory hidden high hill hint hippo history hobby hockey holiday honey hood hook hope
horizon hotel house hover hub huge hunter hurdle hybrid hydrant hyena iceberg icon idea igloo
index indoor ink inlet inner input insect iron island item ivory ivy jacket jaguar january jar
jasmine jazz jealous jelly jersey jester jewel jigsaw job jockey joint joke journey joy judge
juice july jumbo jump june jungle junior jury kangaroo karate kayak keen kennel kettle keyboard
kidney kilo king kiosk kitchen kite kitten kiwi knife koala label lace ladder lady lagoon lake
lamb lamp land language lantern laptop large laser laugh laundry lava lawyer layer leader leaf
learn leather lecture legend lemon leopard lesson liberty library lift light lilac lily limb
linen lion liquid lizard llama lobster locket lodge lofty logic lorry lotus lounge loyal luggage
lumber lunar lunch luxury lyric machine magic magnet mahogany major mammal mandolin mango
mansion maple marble march market mask master meadow melody member memory menu mercury message
metro midnight milk mimic mineral mirror mitten mixture mobile model moist molecule monkey moon
mosaic motel mother motor mountain mouse movie muffin museum music mustard mystery napkin nation
nature navy nebula nectar needle nephew nerve nest network nickel niece nine noise noodle north
notebook nougat novel nuclear number nurse nutmeg nylon oak oasis oats object oblong ocean
october offer office oil olive omega omelet once onion onyx opal opera opinion oracle orange
orbit orchard organ orphan ostrich otter oval oven owl oxygen oyster ozone paddle pagoda paint
palace panda paper parade parrot party pasta patch pattern pavement peanut pebble pelican pen
pepper phantom phone photo physics piano picnic pigeon pillow pilot pine pioneer pipe pirate
pizza planet plastic plough plum pocket poker polar pond pony poplar porch postcard potato
pottery powder prairie prince pudding pumpkin pupil puppet purple puzzle pyramid python quail
quarter queen quilt quiz rabbit raccoon radar raft railway rainbow rally ranch raven razor
reindeer rhubarb rhythm ribbon rice ride ritual river roast robin rocket rodeo roller romance
roof room rope rotate royal rubber ruby rudder rugby ruler rumour runway saddle safari sage
saint salad salmon salute sand sapphire satin saturn savage scale science scooter script scuba
search series seven shadow shell shield ship shop shower shrimp silver singer siren sister sixty
skate sketch skull sky sleep slice snack snow soap soccer social sofa solar soldier solid sonata
soon soup south space spark special spider spiral sponge spring square squid stable statue steam
stick stone street student style subway sudden sugar suit summer sunset super surface survey
swallow sweet swift symbol syrup system table tackle tadpole tailor take talent tamarind tango
tank tape target task tattoo tavern taxi teacher team teapot temple tender tennis term test
texture thank theatre thick thirty thorn thunder ticket tidy tiger timber tinsel tiny tissue
title toast today toffee together toilet token tomato tongue tool topic tornado tortoise total
toucan tourist towel toy tractor train treasure triangle tropical truck try tube tulip tuna
tunnel turbine turtle tuxedo twelve twin type typhoon ugly ultra umbrella umpire uncle under
unicorn union unknown until upper upset uranium urban urgent useful usual utensil vacuum valley
vampire van vapour various vase vault vector velvet vendor verb vessel veteran viaduct victory
video village vine violet virus visit vitamin vivid vocal voice volcano volume vote voyage
vulture waffle wagon walnut walrus warm wasp water wealth wedding welcome west white width wild
willow window winter wire wisdom witness wizard wolf woman word world worth yacht yard year
yellow yes yogurt young youth zebra zero zigzag zinc zipper zodiac zone zoo
"""
_LIST = tuple(_TEXT.split())
assert len(_LIST) == 1 << _BITS
