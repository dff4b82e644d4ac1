"""Secure aggregation: the server learns the sum of the clients' vectors, and nothing else of them.

    phase 0  advertise     client: two public keys                    server: the keys of all, U1
    phase 1  share_keys    client: sealed shares of its two secrets   server: to each its boxes, U2
    phase 2  masked_input  client: its masked vector                  server: who is left, U3
    phase 3  unmask        client: one share for each client of U2    server: the sum over U3

Each phase is one message from the server and one message from each remaining client. Clients may
drop out at any point as long as ``threshold`` of them stay. The server tells each thing once. Of
the n^2 boxes it tells a client only the client's own n. All keys depend on the parameters, the
round, the keys of U1, and a digest of everything else that clients are told (the weights): clients
that were told something else cannot open each other's boxes. Client u adds to its vector its own
mask, PRG(b_u). For every other client v of U2 it adds a mask that v subtracts: PRG of the secret
that their mask keys agree on. In phase 3 the others reveal shares of b_u if u is in U3, and of the
mask key of u otherwise, so that the server can remove the masks that did not cancel.

What is proven (Section 6 of the source, honest but curious clients and server): a server that
follows the protocol, and pools everything it sees with fewer than ``threshold`` clients, learns the
sum of the vectors of the other clients of U3, and nothing else about them. This is not differential
privacy: the sum is exact, and only the randomisation of the vectors protects what it reveals.

Certified keys. With an ``Identity`` a client signs its public keys of the round. It takes part only
if every key of U1 is signed by the client of the roster that it stands for. A server can then
neither invent a client nor read a box or a mask in another client's place.

Both kinds of shares of a client. Suppose that at most u clients of a sum collude with the server,
that keys are certified, and that n + u < 2 t. Then no server, whatever U3 it tells to whom, gets t
shares of b_v and t shares of the mask key of v, for a client v that does not collude. Proof: v
sealed each share for one client of the U1 that it was told, at most n, under keys that depend on
all of U1. A client that was told another U1 cannot open its box, and the keys are certified, so
nobody else can. So all shares of v are held by n clients, of which c <= u collude. Each of the
other n - c reveals at most one share of v, of one kind: it answers phase 3 once, even after a
restart. Both kinds together need t - c of these shares each: 2 t - 2 c <= n - c, so
2 t <= n + c <= n + u, a contradiction.

What a server that cheats could do:

- Without certified keys: answer phase 0 with its own keys, or with clients that it invented.
  Nothing ties a key to a client then, so it learns a single client's vector.
- Leave clients out as drop-outs: the sum then covers as few as ``threshold`` clients, of which all
  but u do not collude. Guarantees that rest on more honest summands assume a server that does not.
- Tell clients different U2 or U3: it gets both secrets of no client, but may learn the sum of a
  smaller group than the clients of any U3. The source's consistency check (its round 3) would
  prevent it.
- Give clients different weights, to get a sum of one client's report and of values it knows. This
  fails: no two clients with different weights take part in one sum.

What a client that cheats could do: turn the sum into any other, but not learn more. It can also
stop a sum. Malformed, repeated or uncertified messages, and keys that would stop others, cost only
its own place. Boxes that others cannot open cost one sum: whoever got one complains instead of
sending a vector, and ``Suspects`` leaves the accused or the accuser out of later rounds. A client
that lies only in phase 3, or seals wrong shares and then leaves, can stop sums again and again
without being identified: without commitments to shares nobody can tell who lied. It must be taken
off the roster by hand. The transport must certify who sent a message.

Committees. A round of many clients may have several sums, one for each committee (``committees``).
Each is a protocol run of its own, in which a client accepts keys only from its committee's members.
Everything above then holds within each committee: n is the number of clients of the largest, and u
bounds the colluding clients of any one of them. The server learns each committee's sum, so whatever
rests on the number of summands rests on that of the smallest committee.

Keys and shares are made anew in each round, not once in a run. A finished sum has told the server
b_u of every client u that stayed, so b_u must be new in the next round, and its shares with it.
Mask keys may not stay either. If u leaves in a later round, the others reveal its mask key; with it
and b_u of the earlier round, the server could take all masks off u's vector of that round. To agree
on keys once would need a protocol that reveals secrets of one round only, and another proof.

Source: Bonawitz, Ivanov, Kreuter, Marcedone, McMahan, Patel, Ramage, Segal, Seth, "Practical Secure
Aggregation for Privacy-Preserving Machine Learning", CCS 2017, Figure 4; the signed keys are from
its active variant. Ours: the mask key is derived from a shared seed of 16 bytes; a client also
sends its own shares to itself, sealed; it already opens the boxes in phase 2, so that it masks only
with clients who saw the same keys and parameters; and whatever else clients are told is part of the
context.

It may use core, accounting, protocol, mechanisms.
"""

__all__ = [
    "client",
    "client_role",
    "committees",
    "identities",
    "masks",
    "messages",
    "server",
    "server_role",
]
