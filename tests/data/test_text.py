"""A text in any encoding that says so is read, and cut into a part to train on and one held out."""

import pytest

from gkalib.data.text import TEXTS, plain, split_text


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "utf-32-be"])
def test_a_byte_order_mark_says_the_encoding(encoding, tmp_path):
    text = "“Déjà vu”, said\nthe 猫…\n" * 20
    mark = "\ufeff" if encoding.endswith("-be") else ""
    for ends in ("\n", "\r\n", "\r"):
        (tmp_path / "mine.txt").write_bytes((mark + text.replace("\n", ends)).encode(encoding))
        train, held_out, symbols = split_text(str(tmp_path / "mine.txt"), documents=False)
        assert "".join(train + held_out) == text and symbols == set(text)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "“it”".encode("cp1252"),
            r"no text in utf-8 \(invalid start byte, byte 0\); if it is one in Windows-1252",
        ),
        ("це".encode("cp1251"), r"no text in utf-8"),
        (
            "some".encode("utf-16-le"),
            r"has bytes of zero: no text in utf-8; if it is one in UTF-16, store it as",
        ),
        (b"\xff\xfea", r"no text in utf-16 \(truncated data"),
        (b"\x89PNG\r\n\x1a\n", r"no text in utf-8"),
    ],
    ids=["1252", "1251", "no mark", "half a letter", "picture"],
)
def test_what_is_no_text_is_refused_with_its_name_and_the_encoding(content, message, tmp_path):
    (tmp_path / "mine.txt").write_bytes(content)
    with pytest.raises(ValueError, match=rf"^data: .*mine.txt .*{message}"):
        split_text(str(tmp_path / "mine.txt"), documents=False)


def test_the_mark_of_cpm_at_the_end_is_left_out():
    assert plain(b"the end\n\x1a", "name") == "the end\n"


@pytest.mark.parametrize("documents", [False, True])
def test_the_last_tenth_of_a_text_is_held_out(documents):
    parts = split_text("state-of-the-union", documents=documents)
    load, cut = TEXTS["state-of-the-union"]
    pieces = cut(load()) if documents else [load()]
    assert "".join(parts[0] + parts[1]) == "".join(pieces)
    train, held_out = (sum(map(len, some)) if not documents else len(some) for some in parts[:2])
    assert train == (train + held_out) * 9 // 10
