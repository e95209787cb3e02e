"""An export that is ended leaves nothing half written, and what was there before."""

import pyarrow as pa
import pytest

from joulewise.report.export import FORMATS, write

TABLE = pa.table({"t_s": [1.0, 2.0]})


@pytest.mark.parametrize("form", FORMATS)
def test_ctrl_c_leaves_no_part(form, tmp_path):
    def pieces():
        yield TABLE
        raise KeyboardInterrupt

    (tmp_path / "out").write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write(TABLE.schema, pieces(), form, str(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_text() == "before"


def test_two_exports_to_one_path_do_not_share_a_part(tmp_path, monkeypatch):
    names = []

    def pieces():
        names.extend(path.name for path in tmp_path.iterdir())
        yield TABLE

    for pid in (11, 12):
        monkeypatch.setattr("os.getpid", lambda pid=pid: pid)
        write(TABLE.schema, pieces(), "json", str(tmp_path / "out"))
        (tmp_path / "out").unlink()
    assert len(set(names)) == 2
