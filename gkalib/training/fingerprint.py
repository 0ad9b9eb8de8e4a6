"""What data a run reads, kept in its checkpoints: the names of the classes, and a checksum of each part."""

from typing import NamedTuple, final

from gkalib.data.fetch import few


@final
class Fingerprint(NamedTuple):
    """The data of a run.

    Args:
        classes: the names of the classes by label; none of text.
        train: a checksum of what is trained on: of a data set known here the registry's, which was checked
            when it was read; of one's own text that of its tokens; of a folder of pictures that of the files'
            names, labels and sizes, and of the 4 KiB in the middle of each, so that none is read whole.
        held_out: that of what is measured on.
    """

    classes: tuple[str, ...]
    train: str
    held_out: str


def changes(name: str, there: Fingerprint | None, here: Fingerprint) -> str:
    """What has changed in the data since a run was trained on them, in words; nothing if nothing has.

    Args:
        name: of the data.
        there: what the run knows; None in a checkpoint of before that was kept.
        here: what is there now.

    Raises:
        ValueError: if the classes are others; the message names them.
    """
    if there is None or there[1:] == here[1:]:
        return ""
    lost, new = (sorted({*a.classes} - {*b.classes}) for a, b in ((there, here), (here, there)))
    if lost or new:
        words = [f"it lacks {few(lost)}"] * bool(lost)
        words += [f"it has {few(new)}, which the model does not know"] * bool(new)
        raise ValueError(
            f"train: {name} has other classes than the run was trained on: {' and '.join(words)}; classes go "
            "by the names of their folders"
        )
    return f"{name} has changed since the run was trained on it: what it has learned may be held out now"
