import pytest

from joulewise.control.permissions import scheduler

MACHINE = "pid:[4026531836]"
CONTAINER = "pid:[4026532589]"
ID = "3f" * 32
PID = 42


@pytest.fixture
def proc(tmp_path):
    def make(cgroup="", namespace=MACHINE, first="systemd", parents=(7, 1)):
        """A /proc in which we are process 42, with these ancestors."""
        pids = (PID, *parents)
        for pid, parent in zip(pids, (*parents, 0), strict=True):
            folder = tmp_path / str(pid)
            folder.mkdir()
            (folder / "stat").write_text(f"{pid} (python (3)) S {parent} 1 1 0")
        (tmp_path / "1").mkdir(exist_ok=True)
        (tmp_path / "1/comm").write_text(first + "\n")
        (tmp_path / "self").symlink_to(str(PID))
        (tmp_path / "self/cgroup").write_text(cgroup)
        (tmp_path / "self/ns").mkdir()
        (tmp_path / "self/ns/pid").symlink_to(namespace)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("environ", "who"),
    [
        ({"SLURM_JOB_ID": "77"}, "Slurm (job 77)"),
        ({"PBS_JOBID": "12.head"}, "PBS (job 12.head)"),
        ({"LSB_JOBID": "5"}, "LSF (job 5)"),
        ({"FLUX_JOB_ID": "f2"}, "Flux (job f2)"),
        ({"JOB_ID": "9", "SGE_JOB_SPOOL_DIR": "/spool/9"}, "Grid Engine (job 9)"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "Kubernetes"),
        ({"JOB_ID": "9"}, None),
        ({"SLURM_JOB_ID": ""}, None),
    ],
)
def test_jobs_are_known_by_their_variables(proc, environ, who):
    assert scheduler(environ, proc()) == who


@pytest.mark.parametrize(
    ("cgroup", "who"),
    [
        ("0::/system.slice/slurmstepd.scope/job_31/step_0/user/task_0\n", "Slurm (job 31)"),
        ("9:memory:/slurm/uid_1000/job_31/step_batch\n1:name=systemd:/\n", "Slurm (job 31)"),
        ("0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-1.scope\n", "Kubernetes"),
        ("4:pids:/kubepods/besteffort/pod1/2\n", "Kubernetes"),
        ("0::/system.slice/train.service\n", "systemd (train.service)"),
        ("1:name=systemd:/system.slice/train.service\n0::/\n", "systemd (train.service)"),
        (f"0::/system.slice/docker-{ID}.scope\n", "the container's runtime"),
        (f"0::/docker/{ID}\n", "the container's runtime"),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        (
            "0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-kitty-1.scope\n",
            None,
        ),
        ("1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n", None),
        ("0::/system.slice/cron.service\n", None),
        ("0::/system.slice/ssh.service\n", None),
        ("0::/init.scope\n", None),
        ("0::/\n", None),
        ("", None),
    ],
)
def test_whole_cgroups_are_known_by_their_paths(proc, cgroup, who):
    assert scheduler({}, proc(cgroup)) == who


def test_a_job_in_a_container_ends_with_its_process_1(proc):
    made = proc("0::/\n", CONTAINER, "tini")
    assert scheduler({}, made) == "the container's process 1 (tini)"


def test_the_job_itself_may_be_process_1(proc, tmp_path):
    made = proc("0::/\n", CONTAINER, "python")
    (tmp_path / "self").unlink()
    (tmp_path / "self").symlink_to("1")
    (tmp_path / "1/ns").mkdir()
    (tmp_path / "1/ns/pid").symlink_to(CONTAINER)
    assert scheduler({}, made) == "the container's process 1 (python)"


def test_a_shell_put_into_a_container_is_a_login(proc):
    assert scheduler({}, proc("0::/\n", CONTAINER, "sleep", parents=(30,))) is None


def test_a_container_that_is_a_machine_of_its_own_is_a_login(proc):
    assert scheduler({}, proc("0::/\n", CONTAINER, "systemd")) is None


def test_simulated_gpus_are_inherited_by_nobody_but_a_job_is_a_job(proc):
    simulated = {"JOULEWISE_SIM": "/dev/shm/one"}
    made = proc("0::/system.slice/train.service\n")
    assert scheduler(simulated, made) is None
    assert scheduler({**simulated, "SLURM_JOB_ID": "7"}, made) == "Slurm (job 7)"
