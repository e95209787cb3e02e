"""The container that a run is in, by the signs that each engine leaves."""

import pytest

from joulewise.data.runs import Container
from joulewise.record.environment import detect_container

ID = "0123456789abcdef" * 4
OTHER = "f" * 64


def machine(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "environ", "container"),
    [
        ({"proc/self/cgroup": "0::/user.slice/user-1000.slice\n"}, {}, None),
        ({}, {}, None),
        # Docker, cgroups of version 1, and of version 2, which hides the path
        (
            {"proc/self/cgroup": f"4:memory:/docker/{ID}\n1:cpu:/docker/{ID}\n"},
            {},
            Container("docker", ID),
        ),
        (
            {
                ".dockerenv": "",
                "proc/self/cgroup": "0::/\n",
                "proc/self/mountinfo": "1 2 8:1 /lib/modules /lib/modules ro\n"
                f"650 640 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw\n",
            },
            {},
            Container("docker", ID),
        ),
        # a pod: the container is the last part of the path
        (
            {"proc/self/cgroup": f"1:cpu:/kubepods/burstable/pod{OTHER}/{ID}\n"},
            {},
            Container("kubernetes", ID),
        ),
        (
            {".dockerenv": "", "proc/self/cgroup": "0::/\n"},
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1"},
            Container("kubernetes"),
        ),
        (
            {
                "run/.containerenv": f'engine="podman-4.9"\nid="{ID}"\nimage="quay.io/x:1"\n',
                "proc/self/cgroup": "0::/\n",
            },
            {},
            Container("podman", ID, "quay.io/x:1"),
        ),
        ({"run/.containerenv": ""}, {}, Container("podman")),
        ({"run/systemd/container": "lxc\n"}, {}, Container("lxc")),
        ({"proc/self/cgroup": "1:name=systemd:/lxc/box\n"}, {}, Container("lxc")),
        (
            {"proc/self/cgroup": "0::/user.slice\n"},
            {"APPTAINER_CONTAINER": "/home/me/images/torch.sif"},
            Container("apptainer", image="torch.sif"),
        ),
        ({}, {"SINGULARITY_CONTAINER": "/x/y.sif"}, Container("singularity", image="y.sif")),
    ],
)
def test_each_engine_is_known_by_its_signs(tmp_path, files, environ, container):
    assert detect_container(environ, machine(tmp_path, files)) == container


def test_mounts_of_other_containers_are_no_sign(tmp_path):
    """A host that runs Docker sees the mounts of all its containers."""
    mounts = f"9 8 8:1 / /var/lib/docker/containers/{ID}/mounts/shm rw\n"
    files = {"proc/self/cgroup": "0::/system.slice\n", "proc/self/mountinfo": mounts}
    assert detect_container({}, machine(tmp_path, files)) is None
