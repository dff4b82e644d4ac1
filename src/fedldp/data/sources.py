"""The published data sets: files, sizes, checksums, addresses and licences.

Sizes and SHA-256 of MNIST, Fashion-MNIST and the CIFAR-10 batches were computed from files that
match the published MD5 sums. The checksum of the CIFAR-10 archive is the one that Keras checks,
those of SVHN are the ones that torchvision.prototype checks, and that of Covertype is the one that
scikit-learn's fetch_covtype checks.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedldp.core.errors import ConfigError


@dataclass(frozen=True)
class PublishedFile:
    """One file as its publisher serves it.

    Attributes:
        name: its name in the data set's folder.
        size: the file's size in bytes.
        sha256: the SHA-256 of its bytes, in hexadecimal.
        addresses: where to download it, in the order to try; empty for a member of an archive.
    """

    name: str
    size: int
    sha256: str
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class PublishedDataset:
    """A data set and the files from which it is read.

    Attributes:
        name: its name in a run's configuration.
        home: the address of its home page.
        licence: the licence, as the publisher states it.
        num_examples: the number of training and test examples together.
        num_train: the number of training examples.
        input_shape: the shape of an example.
        num_classes: the number of classes; labels are 0 to num_classes - 1.
        folder: its folder below the data folder; empty if a library includes the data set.
        files: the files that the loader reads, in order.
        archive: the one download that holds all the files, if they are not served one by one.
        stand_in: a smaller data set, used if it is present and this one is not.
        means: the mean of each channel of the training images in [0, 1]; empty if none are
            published.
        deviations: the standard deviations, in the same form as ``means``.
    """

    name: str
    home: str
    licence: str
    num_examples: int
    num_train: int
    input_shape: tuple[int, ...]
    num_classes: int
    folder: str = ""
    files: tuple[PublishedFile, ...] = ()
    archive: PublishedFile | None = None
    stand_in: PublishedDataset | None = None
    means: tuple[float, ...] = ()
    deviations: tuple[float, ...] = ()

    def addresses(self, file: PublishedFile) -> tuple[str, ...]:
        """The addresses of the file, or of the archive that holds it."""
        return self.archive.addresses if self.archive else file.addresses


def _idx_files(
    mirrors: tuple[str, ...], table: tuple[tuple[str, int, str], ...]
) -> tuple[PublishedFile, ...]:
    return tuple(
        PublishedFile(name, size, sha256, tuple(mirror + name for mirror in mirrors))
        for name, size, sha256 in table
    )


_DIGITS = PublishedDataset(
    name="digits",
    means=(0.3054,),
    deviations=(0.3761,),
    home="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    licence="CC BY 4.0",
    num_examples=1_797,
    num_train=1_437,
    input_shape=(1, 8, 8),
    num_classes=10,
)

_MNIST = PublishedDataset(
    name="mnist",
    means=(0.1307,),
    deviations=(0.3081,),
    home="http://yann.lecun.com/exdb/mnist/",
    licence="none stated; often quoted as CC BY-SA 3.0",
    num_examples=70_000,
    num_train=60_000,
    input_shape=(1, 28, 28),
    num_classes=10,
    folder="mnist",
    files=_idx_files(
        # The mirror comes first, because the home page has refused downloads for years.
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "http://yann.lecun.com/exdb/mnist/"),
        (
            (
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
    ),
)

_FMNIST = PublishedDataset(
    name="fmnist",
    means=(0.2860,),
    deviations=(0.3530,),
    home="https://github.com/zalandoresearch/fashion-mnist",
    licence="MIT",
    num_examples=70_000,
    num_train=60_000,
    input_shape=(1, 28, 28),
    num_classes=10,
    folder="fashion-mnist",
    files=_idx_files(
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            (
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            (
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            (
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            (
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
    ),
)

_CIFAR10 = PublishedDataset(
    name="cifar10",
    means=(0.4914, 0.4822, 0.4465),
    deviations=(0.2470, 0.2435, 0.2616),
    home="https://www.cs.toronto.edu/~kriz/cifar.html",
    licence="none stated",
    num_examples=60_000,
    num_train=50_000,
    input_shape=(3, 32, 32),
    num_classes=10,
    folder="cifar-10-batches-py",
    files=(
        PublishedFile(
            "data_batch_1",
            31_035_704,
            "54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
        ),
        PublishedFile(
            "data_batch_2",
            31_035_320,
            "766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
        ),
        PublishedFile(
            "data_batch_3",
            31_035_999,
            "0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
        ),
        PublishedFile(
            "data_batch_4",
            31_035_696,
            "3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
        ),
        PublishedFile(
            "data_batch_5",
            31_035_623,
            "d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
        ),
        PublishedFile(
            "test_batch",
            31_035_526,
            "f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        ),
    ),
    archive=PublishedFile(
        "cifar-10-python.tar.gz",
        170_498_071,
        "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
        ("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",),
    ),
)

_SVHN_FILES = tuple(
    PublishedFile(name, size, sha256, ("http://ufldl.stanford.edu/housenumbers/" + name,))
    for name, size, sha256 in (
        (
            "train_32x32.mat",
            182_040_794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        (
            "test_32x32.mat",
            64_275_384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
        (
            "extra_32x32.mat",
            1_329_278_602,
            "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
        ),
    )
)


def _svhn(name: str, num_train: int, files: tuple[PublishedFile, ...]) -> PublishedDataset:
    return PublishedDataset(
        name=name,
        home="http://ufldl.stanford.edu/housenumbers/",
        licence="for non-commercial use only",
        num_examples=num_train + 26_032,
        num_train=num_train,
        input_shape=(3, 32, 32),
        num_classes=10,
        folder="svhn",
        files=files,
    )


_COVERTYPE_SUBSET = PublishedDataset(
    name="covertype-subset-92962",
    home="https://github.com/ramp-kits/covertype",
    licence="CC BY 4.0",
    num_examples=92_962,
    num_train=74_369,
    input_shape=(54,),
    num_classes=7,
    folder="covertype",
    files=(
        PublishedFile(
            "covtype-subset-92962.data.gz",
            1_911_640,
            "84b2c04c5ff77c23e8f8b703c335416976925c1a042dee2f0b0a952735418623",
        ),
    ),
)

_COVERTYPE = PublishedDataset(
    name="covertype",
    home="https://archive.ics.uci.edu/dataset/31/covertype",
    licence="CC BY 4.0",
    num_examples=581_012,
    num_train=464_809,
    input_shape=(54,),
    num_classes=7,
    folder="covertype",
    files=(
        PublishedFile(
            "covtype.data.gz",
            11_240_707,
            "614360d0257557dd1792834a85a1cdebfadc3c4f30b011d56afee7ffb5b15771",
            (
                "https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",
                "https://ndownloader.figshare.com/files/5976039",
            ),
        ),
    ),
    stand_in=_COVERTYPE_SUBSET,
)

SOURCES: dict[str, PublishedDataset] = {
    source.name: source
    for source in (
        _DIGITS,
        _MNIST,
        _FMNIST,
        _CIFAR10,
        _svhn("svhn", 73_257, _SVHN_FILES[:2]),
        _svhn("svhn-extra", 73_257 + 531_131, _SVHN_FILES),
        _COVERTYPE,
    )
}
_ALIASES = {"fashion-mnist": "fmnist"}


def find_source(name: str) -> PublishedDataset:
    """Return the built-in data set with this name.

    Raises:
        ConfigError: there is no data set of that name.
    """
    source = SOURCES.get(_ALIASES.get(name, name))
    if source is None:
        raise ConfigError(
            f"dataset is {name!r}, which is unknown; give one of {', '.join(SOURCES)}, or the path "
            "of a .npz or .csv file"
        )
    return source
