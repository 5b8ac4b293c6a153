"""What is known of each data set: enough to tell the right file from another."""

from __future__ import annotations

from typing import NamedTuple

_FEWER_SPLITS = {"protein": 5}


def standard_splits(name: str) -> int:
    """Return how many standard splits a regression table has."""
    return _FEWER_SPLITS.get(name, 20)


class Facts(NamedTuple):
    """What is known of a table.

    Attributes:
        task: ``"regression"`` or ``"classification"``.
        rows: How many.
        features: How many columns besides the target.
        classes: How many, or ``None`` for a regression.
        sha256: Of the file in our format.
        target_facts: Of a regression, the target's mean, smallest and largest value; of a
            classification, how many rows each class has.
        fingerprint: Σⱼ j (log sd(xⱼ) + corr(xⱼ, y)) over the columns j = 1, 2, …: the same for any
            order of the rows, another for another order, unit or choice of the columns.
        row_order: Of a regression, Σⱼ j corr(zⱼ, row number) over the columns of (x, y): another one
            where the rows come in another order, and the standard splits would count wrong ones.

    Example:
        >>> from reproduction import data
        >>> data.UCI["yacht"].rows
        308
    """

    task: str
    rows: int
    features: int
    classes: int | None
    sha256: str
    target_facts: tuple[int | float, ...]
    fingerprint: float
    row_order: float | None = None


def _regression(
    rows: int,
    features: int,
    sha256: str,
    target_facts: tuple[int | float, ...],
    fingerprint: float,
    row_order: float,
) -> Facts:
    return Facts("regression", rows, features, None, sha256, target_facts, fingerprint, row_order)


def _classification(
    rows: int, features: int, sha256: str, counts: tuple[int, ...], fingerprint: float
) -> Facts:
    return Facts("classification", rows, features, len(counts), sha256, counts, fingerprint)


UCI: dict[str, Facts] = {
    "boston": _regression(
        506,
        13,
        "6bf2c057a14a36e3a3b127fd85883d71d139ab4f7014efc1e829a06dbb4064e8",
        (22.5328, 5.0, 50.0),
        165.73795,
        14.59574,
    ),
    "concrete": _regression(
        1030,
        8,
        "4556b4f7b90797721684b5a8cc22097ef531f88d5c2ef55ae51cb62b631ef603",
        (35.8178, 2.33, 82.60),
        138.77575,
        -5.41069,
    ),
    "energy": _regression(
        768,
        8,
        "740460e01810e59e305bb9d07cf6b7a03ef2cd4226fb2ac4278b7b335ce91d25",
        (22.3072, 6.01, 43.10),
        30.37575,
        12.31199,
    ),
    "kin8nm": _regression(
        8192,
        8,
        "d70dc918d940dd22a4a9535c93cee1f6167eacca45b7d9f666cd2f0e2e2ca3ac",
        (0.71428, 0.0402, 1.4585),
        -5.72012,
        -0.32412,
    ),
    "naval": _regression(
        11934,
        14,
        "90c0525bab17ecfc510c22f15e5cbbd48e5c71f1437c63eef0946cd9154bfe9a",
        (0.975, 0.95, 1.0),
        241.77735,
        14.23034,
    ),
    "power": _regression(
        9568,
        4,
        "4c71d655640f13724a2ebe67349d56d2862d987082a5bd4c65a1511ee05facfd",
        (454.3650, 420.26, 495.76),
        23.58792,
        -0.02016,
    ),
    "yacht": _regression(
        308,
        6,
        "4f69414629484792c3052fcbd21f4f021ddc5c6bb58a64b276087ff0eaa0a105",
        (10.4954, 0.01, 62.42),
        -29.63820,
        0.03481,
    ),
    "wine_red": _regression(
        1599,
        11,
        "9fc9baac3f8ed257b183fc5fdace7f44d28d90a246cc3f4c7f7b3d58a3eee92e",
        (5.63602, 3.0, 8.0),
        -63.56043,
        -1.23544,
    ),
    "protein": _regression(
        45730,
        9,
        "128d54fd1ce1d5c482b3b8d285ab22270f04cd0cbda2794d2160b8929b63021b",
        (7.74853, 0.0, 20.999),
        224.90526,
        0.29070,
    ),
    "australian": _classification(
        690,
        14,
        "25137869402eca61b31a3ea43254fdea67b4eba17b7b4a2a5d7729835f63556b",
        (383, 307),
        217.34882,
    ),
    "breast_cancer": _classification(
        569,
        30,
        "394d06df28d304c938d8de816bf17522e1166d34a923d14d0100d71034542510",
        (357, 212),
        -541.45139,
    ),
    "glass": _classification(
        214,
        9,
        "e3fcad8b1e90499df8bb67067311fb37f4d8df683fa799e491a0bd8aaa2d3aa7",
        (70, 76, 17, 13, 9, 29),
        -31.37793,
    ),
    "ionosphere": _classification(
        351,
        33,
        "68001b576b7d12cc801a255c268b9e0c8abea4e187424315ab59535e396e14c6",
        (225, 126),
        -412.83853,
    ),
    "satellite": _classification(
        6435,
        36,
        "706df0857d178ef6a84787c25455b52e4dfab78fcf0b1e25431e7da8b5ea4fdf",
        (1533, 703, 1358, 626, 707, 1508),
        1680.39763,
    ),
}
"""The tables by name: the twelve of the paper, wine_red and protein."""


class ImageFacts(NamedTuple):
    """What is known of a file of images and the file of their labels."""

    images_sha256: str
    labels_sha256: str
    class_counts: tuple[int, ...]
    pixel_sum: int


IMAGES: dict[str, dict[str, ImageFacts]] = {
    "mnist": {
        "train": ImageFacts(
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
            1567298545,
        ),
        "t10k": ImageFacts(
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
            264923200,
        ),
    },
    "fashion_mnist": {
        "train": ImageFacts(
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            (6000,) * 10,
            3431114169,
        ),
        "t10k": ImageFacts(
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            (1000,) * 10,
            573469082,
        ),
    },
}
