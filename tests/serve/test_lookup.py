"""Nothing outside the store is served, whatever the address."""

import json
from dataclasses import replace

import pytest

from joulewise.data.sweeps import Setting, Trial, TrialState
from joulewise.store.layout import MANIFEST, SWEEPS
from joulewise.sweep.lock import running
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import SWEEP_FILE, as_text, create_sweep, load_sweep

RUN = "20261101-120000-aaaa"
OTHER = "20261101-120000-bbbb"
AS_IT_IS = Setting.of({"power_limit_w": None})


@pytest.mark.parametrize("kind", ["run", "live", "now", "sweep"])
@pytest.mark.parametrize(
    "name",
    [
        f"../outside/{OTHER}",
        f"..%2foutside%2f{OTHER}",
        f"%2e%2e/outside/{OTHER}",
        f"%2e%2e%2foutside%2f{OTHER}",
        f"..%252foutside%252f{OTHER}",
        "..",
        "%2e%2e",
        ".",
        "",
        "%00",
        f"{RUN}%00",
        f"{RUN}/",
        f"{RUN}%2f{MANIFEST}",
        "a" * 5000,
        "%ff%fe",
        "sweeps",
        "{outside}",
        "{outside_quoted}",
    ],
)
def test_unknown_names_are_not_found(view, make_run, tmp_path, kind, name):
    make_run(RUN)
    outside = make_run(OTHER, place=tmp_path / "outside", name="not to be seen")
    path = name.format(outside=outside, outside_quoted=str(outside).replace("/", "%2f"))
    answer = view.get(f"{kind}/{path}")
    assert answer.status == 404
    assert "not to be seen" not in answer.text


@pytest.mark.parametrize("target", ["static/../site.py", "static/site.py", "static/%2e%2e/site.py"])
def test_only_known_static_files_are_served(view, target):
    assert view.get(target).status == 404


def test_a_link_out_of_the_store_is_reported_and_not_followed(view, store, make_run, tmp_path):
    outside = make_run(OTHER, place=tmp_path / "outside", name="not to be seen")
    (store / OTHER).symlink_to(outside)
    listed = view.get()
    assert "not to be seen" not in listed.text
    assert "nothing outside the store is shown" in listed.words
    for kind in ("run", "live", "now"):
        answer = view.get(f"{kind}/{OTHER}")
        assert answer.status == 404
        assert "not to be seen" not in answer.text


@pytest.mark.parametrize("file", [MANIFEST, "trace/gpu0.arrows"])
def test_a_link_in_a_run_is_not_followed_either(view, make_run, tmp_path, file):
    outside = make_run(OTHER, place=tmp_path / "outside", name="not to be seen") / file
    inside = make_run(RUN) / file
    inside.unlink()
    inside.symlink_to(outside)
    assert "not to be seen" not in view.get().text
    for kind in ("run", "live", "now"):
        answer = view.get(f"{kind}/{RUN}")
        assert answer.status == 500
        assert "not to be seen" not in answer.text
        assert "a symbolic link" in answer.text


def test_a_link_in_place_of_the_sweeps_folder_is_not_followed(view, store, tmp_path):
    (tmp_path / "elsewhere" / RUN).mkdir(parents=True)
    (store / SWEEPS).symlink_to(tmp_path / "elsewhere")
    assert view.get(f"sweep/{RUN}").status == 404


@pytest.mark.parametrize("side", ["../outside", "%2e%2e/outside", "sweep:../../outside", ""])
def test_a_comparison_checks_the_names_of_both_sides(view, make_run, side):
    make_run(RUN)
    assert view.get(f"compare?a={RUN}&b={side}").status in {400, 404}


def test_a_manifest_with_another_id_is_shown_by_its_folder(view, make_run):
    run = make_run(RUN)
    manifest = json.loads((run / MANIFEST).read_text())
    del manifest["crc32"]
    (run / MANIFEST).write_text(json.dumps({**manifest, "id": "../../etc/passwd"}))
    assert f'href="run/{RUN}"' in view.get().text


@pytest.mark.parametrize("name", ["../outside/run", "{outside}", OTHER])
def test_a_sweep_that_names_runs_outside_is_not_shown(view, store, make_run, tmp_path, name):
    outside = make_run(OTHER, place=tmp_path / "outside", name="not to be seen")
    (store / OTHER).symlink_to(outside)
    folder = create_sweep(store, SweepSpec(), Space((AS_IT_IS,), AS_IT_IS))
    trial = Trial(AS_IT_IS, 0, TrialState.DONE, run=name.format(outside=outside))
    (folder / SWEEP_FILE).write_text(as_text(replace(load_sweep(folder), trials=(trial,))))
    answer = view.get(f"sweep/{folder.name}")
    assert answer.status == 500
    assert "names a run outside the store" in answer.words
    assert "not to be seen" not in answer.text


def test_a_sweep_is_running_while_a_process_holds_its_lock(view, store):
    """Nothing in its file tells a sweep that runs from one that was killed."""
    folder = create_sweep(store, SweepSpec(), Space((AS_IT_IS,), AS_IT_IS))
    trial = Trial(AS_IT_IS, 0, TrialState.DONE, time_s=1.0)
    (folder / SWEEP_FILE).write_text(
        as_text(replace(load_sweep(folder), state="running", trials=(trial,)))
    )
    with running(folder):
        listed, page = view.get().words, view.get(f"sweep/{folder.name}").words
        assert "running" in listed
        assert "running: 1 of 5 runs" in page
    listed, page = view.get().words, view.get(f"sweep/{folder.name}").words
    assert "interrupted" in listed
    assert "interrupted: 1 of 5 runs" in page
