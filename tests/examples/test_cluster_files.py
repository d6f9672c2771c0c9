"""Files of examples/cluster: they parse, validate, agree with each other and with Arena."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.docs.command_lines import problem_of

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples" / "cluster"
SCRIPTS = sorted([*CLUSTER.rglob("*.sh"), *CLUSTER.rglob("*.sbatch")])
BATCH = sorted(CLUSTER.rglob("*.sbatch"))
USER = "10001"
PORTS = [5555, 5556]

Document = dict[str, Any]


def manifests(name: str) -> dict[str, Document]:
    """The objects of a file for Kubernetes, by kind."""
    documents = yaml.safe_load_all((CLUSTER / "kubernetes" / name).read_text())
    return {document["kind"]: document for document in documents}


CONTROLLER, LEARNERS = manifests("controller.yaml"), manifests("learners.yaml")
PODS = {
    name: kinds[kind]["spec"]["template"]["spec"]
    for name, kinds, kind in (
        ("controller", CONTROLLER, "Deployment"), ("learner", LEARNERS, "StatefulSet")
    )
}  # fmt: skip
COMPOSE: Document = yaml.safe_load((CLUSTER / "compose" / "compose.yaml").read_text())


def instructions(text: str) -> list[tuple[str, str]]:
    """Return a container file's instructions, each with its arguments, in order."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


STEPS = instructions((CLUSTER / "container" / "Containerfile").read_text())


def words_after(words: list[str], name: str) -> list[str]:
    return words[[word.rpartition("/")[2] for word in words].index(name) :]


def launched(words: list[str]) -> str:
    """The command that controller.sh makes of its arguments."""
    _, run, *rest = words_after(words, "controller.sh")
    return shlex.join(["arena", "launch", *rest, "endpoint=tcp://10.0.0.1:5555", "--run-dir", run])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_parse(path: Path) -> None:
    shell = "bash" if path in BATCH else "sh"
    assert path.read_text().startswith(f"#!/bin/{shell}\n")
    subprocess.run([shell, "-n", path], check=True)


OPTIONS = {
    "job-name", "array", "ntasks", "cpus-per-task", "mem", "time", "requeue", "signal",
    "open-mode", "output",
}  # fmt: skip
"""Of the options of sbatch, those that are used."""


def batch_options(path: Path) -> dict[str, str]:
    """Options of a batch script; Slurm reads those before the first command."""
    options = {}
    for line in path.read_text().splitlines()[1:]:
        if not line.startswith("#"):
            if line.strip():
                break
            continue
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            options[name] = value
    return options


@pytest.mark.parametrize("path", BATCH, ids=lambda path: path.name)
def test_batch_jobs_are_queued_again_and_trap_the_signal_that_they_ask_for(path: Path) -> None:
    options = batch_options(path)
    assert set(options) <= OPTIONS
    assert path.read_text().count("#SBATCH") == len(options)
    assert options["requeue"] == ""
    asked = re.fullmatch(r"B:(\w+)@(\d+)", options["signal"])
    assert asked is not None
    assert re.search(rf"^trap '.*requeue=yes.*' {asked[1]}$", path.read_text(), re.MULTILINE)
    # A learner needs up to 30 s to end its work.
    assert int(asked[2]) > 30
    assert re.fullmatch(r"\d\d:\d\d:\d\d", options["time"])
    assert re.fullmatch(r"\d+G", options["mem"])
    # The log of an earlier start must be kept.
    assert options["open-mode"] == "append"


def test_learners_are_an_array_by_the_numbers_of_keys() -> None:
    assert batch_options(CLUSTER / "slurm" / "learners.sbatch")["array"] == "0-3"
    text = (CLUSTER / "slurm" / "controller.sbatch").read_text()
    assert "LEARNERS:-4" in text


@pytest.mark.parametrize(
    "document",
    [*CONTROLLER.values(), *LEARNERS.values()],
    ids=lambda document: f"{document['kind']}-{document['metadata']['name']}",
)
def test_manifests_are_valid(document: Document) -> None:
    kubernetes_validate.validate(document, "1.30", strict=True)


def test_a_wrong_manifest_is_found() -> None:
    wrong = yaml.safe_load(yaml.safe_dump(CONTROLLER["Deployment"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["comand"] = ["sh"]
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(wrong, "1.30", strict=True)


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_pods_have_no_rights(pod: Document) -> None:
    (container,) = pod["containers"]
    inside = container["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == USER
    assert pod["automountServiceAccountToken"] is False
    assert inside["readOnlyRootFilesystem"] is True
    assert inside["allowPrivilegeEscalation"] is False
    assert inside["capabilities"] == {"drop": ["ALL"]}
    assert {one["name"] for one in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}


def test_manifests_agree_with_each_other() -> None:
    assert [one["port"] for one in CONTROLLER["Service"]["spec"]["ports"]] == PORTS
    (controller,) = PODS["controller"]["containers"]
    assert [one["containerPort"] for one in controller["ports"]] == PORTS
    labels = {"app": "arena-controller"}
    assert CONTROLLER["Service"]["spec"]["selector"] == labels
    assert CONTROLLER["Deployment"]["spec"]["template"]["metadata"]["labels"] == labels
    (rule,) = CONTROLLER["NetworkPolicy"]["spec"]["ingress"]
    assert [one["port"] for one in rule["ports"]] == PORTS
    learner = LEARNERS["StatefulSet"]["spec"]
    assert rule["from"][0]["podSelector"] == learner["selector"]
    assert f"remote_learners={learner['replicas']}" in controller["args"]
    name = CONTROLLER["Service"]["metadata"]["name"]
    (container,) = PODS["learner"]["containers"]
    assert f"tcp://{name}:{PORTS[0]}" in container["command"][-1]
    (secret,) = [one["secret"] for one in PODS["learner"]["volumes"] if "secret" in one]
    page = (ROOT / "docs" / "how-to" / "cluster.md").read_text()
    assert f"secret generic {secret['secretName']} " in page
    # Two controllers must never share the volume, so the old one ends first.
    assert CONTROLLER["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    claim = CONTROLLER["PersistentVolumeClaim"]["spec"]["accessModes"]
    assert claim == ["ReadWriteOncePod"]
    # Otherwise Kubernetes makes keys readable by the group at each start.
    policy = PODS["controller"]["securityContext"]["fsGroupChangePolicy"]
    assert policy == "OnRootMismatch"


def test_commands_of_kubernetes_are_arenas() -> None:
    (controller,) = PODS["controller"]["containers"]
    words = [*controller["command"], *controller["args"]]
    assert words[:3] == ["sh", "/opt/arena/again.sh", "--stay"]
    assert problem_of(launched(words)) == ""
    (learner,) = PODS["learner"]["containers"]
    *_, line = learner["command"][-1].strip().splitlines()
    assert line.startswith("exec arena learner ")
    assert problem_of(line) == ""
    subprocess.run(["sh", "-n", "-c", learner["command"][-1]], check=True)


def validate_services(document: Document) -> None:
    """Check a document as the specification has it; what YAML merges is merged already."""
    # The import is local: every worker collects this module, and the package takes long to import.
    import compose_spec

    compose_spec.PyCompose.from_yaml(yaml.safe_dump(document)).validate()


def test_services_are_valid() -> None:
    validate_services(COMPOSE)


@pytest.mark.parametrize(
    ("key", "value"),
    [("restrat", "no"), ("restart", "sometimes"), ("networks", ["elsewhere"]), ("read_only", 7)],
)
def test_a_wrong_service_is_found(key: str, value: object) -> None:
    services = {name: {**one, key: value} for name, one in COMPOSE["services"].items()}
    with pytest.raises(ValueError, match=key.rstrip("s")):
        validate_services({**COMPOSE, "services": services})


def test_services_have_no_rights_and_no_way_out() -> None:
    assert COMPOSE["networks"] == {"arena": {"internal": True}}
    for service in COMPOSE["services"].values():
        assert service["user"] == f"{USER}:{USER}"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "ports" not in service
        assert service["networks"] == ["arena"]
        assert service["volumes"] == ["runs:/runs"]
        # again.sh restarts what can continue, so the container must not restart.
        assert service["restart"] == "no"
        build = service["build"]
        context = (CLUSTER / "compose" / build["context"]).resolve()
        assert context == ROOT
        assert (context / build["dockerfile"]).is_file()


def test_commands_of_compose_are_arenas() -> None:
    services = COMPOSE["services"]
    controller = services["controller"]
    learners = {name: one for name, one in services.items() if name != "controller"}
    words = controller["command"]
    assert problem_of(launched(words)) == ""
    assert f"remote_learners={len(learners)}" in words
    for number, (name, service) in enumerate(learners.items()):
        assert name == f"learner-{number}"
        assert service["depends_on"] == {"controller": {"condition": "service_healthy"}}
        assert problem_of(shlex.join(service["command"])) == ""
        assert service["command"][-1].endswith(f"keys/remote-{number}.key")
        assert f"tcp://controller:{PORTS[0]}" in service["command"]
    # The controller is ready when it has written the last learner's key.
    assert controller["healthcheck"]["test"][-1].endswith(f"keys/remote-{len(learners) - 1}.pub")


def test_the_image_runs_without_root_what_the_project_pins() -> None:
    words = [word for word, _ in STEPS]
    assert words.count("FROM") == 1
    assert [rest for word, rest in STEPS if word == "USER"] == [f"{USER}:{USER}"]
    assert words.index("USER") > max(at for at, word in enumerate(words) if word == "RUN")
    assert STEPS[-1] == ("ENTRYPOINT", '["arena"]')
    runs = " ".join(rest for word, rest in STEPS if word == "RUN")
    pins = (ROOT / "constraints.txt").read_text().splitlines()
    (torch,) = [line for line in pins if line.startswith("torch==")]
    assert f" {torch}" in runs
    assert f"--uid {USER} " in runs


def test_the_image_has_all_packages() -> None:
    copied = {path for word, rest in STEPS if word == "COPY" for path in rest.split()[:-1]}
    assert all((ROOT / path).exists() for path in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    mounts = project["tool"]["setuptools"]["package-dir"]
    tops = {name.split(".")[0] for name in project["tool"]["setuptools"]["packages"]}
    assert tops | set(mounts.values()) <= copied
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= copied
    # The image needs the scripts that the manifests and compose.yaml name.
    assert {"examples/cluster/again.sh", "examples/cluster/controller.sh"} <= copied


def test_instructions_are_read_with_their_continued_lines() -> None:
    text = "# a\nFROM b\n\nRUN one \\\n    && two\nCOPY c d /e/\n"
    assert instructions(text) == [("FROM", "b"), ("RUN", "one  && two"), ("COPY", "c d /e/")]
