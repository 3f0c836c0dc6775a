#!/usr/bin/env python3
"""Checks manifests: their syntax, what a job of hetckpt needs, and their schema if kubernetes-validate is installed.

usage: check.py MANIFEST...
"""

import sys

try:
    import yaml
except ImportError:
    print("  manifests: not checked, this Python has no yaml")
    sys.exit()
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None


def require(is_so, what):
    if not is_so:
        raise ValueError(what)


def check_job(spec):
    pod = spec["template"]["spec"]
    main = pod["containers"][0]
    env = {variable["name"]: variable for variable in main["env"]}
    require(pod["restartPolicy"] == "Never", "podFailurePolicy needs restartPolicy Never")
    require(main["command"][:2] == ["hetckpt", "job"], "hetckpt is not process 1")
    require("shareProcessNamespace" not in pod, "hetckpt would not be process 1")
    grace = int(env["HETCKPT_GRACE"]["value"].removesuffix("s"))
    require(grace < pod["terminationGracePeriodSeconds"], "HETCKPT_GRACE is longer than the grace period")
    path = env["HETCKPT_JOB_NAME"]["valueFrom"]["fieldRef"]["fieldPath"]
    require(path == "metadata.labels['batch.kubernetes.io/job-name']", "the name is not that of all pods of the job")
    rules = spec["podFailurePolicy"]["rules"]
    ignored = [rule for rule in rules if rule["action"] == "Ignore"]
    require(any(75 in rule.get("onExitCodes", {}).get("values", []) for rule in ignored), "exit code 75 counts as a failure")
    require(any("onPodConditions" in rule for rule in ignored), "a disruption counts as a failure")
    require(spec["podReplacementPolicy"] == "Failed", "two pods of the job may run at once")
    mounts = {mount["mountPath"]: mount["name"] for mount in main["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    require(mounts.get(env["HETCKPT_STORE"]["value"]) in volumes, "the store is no volume")


def check(manifest):
    kind = manifest["kind"]
    if kind == "Job":
        check_job(manifest["spec"])
    elif kind == "JobSet":
        for member in manifest["spec"]["replicatedJobs"]:
            check_job(member["template"]["spec"])
            check_schema({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": member["template"]["spec"]})
        return
    elif kind == "PersistentVolumeClaim":
        require(manifest["spec"]["accessModes"] == ["ReadWriteMany"], "not all nodes see the store")
    else:
        raise ValueError(f"nobody knows how to check {kind}")
    check_schema(manifest)


def check_schema(manifest):
    if kubernetes_validate:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def main():
    if len(sys.argv) < 2 or sys.argv[1] == "--help":
        sys.exit(__doc__)
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            for manifest in yaml.safe_load_all(file):
                try:
                    check(manifest)
                except Exception as error:  # all of them say what is wrong
                    sys.exit(f"{path}: {manifest.get('kind')}: {error}")
    print("  manifests:", "schema and contents" if kubernetes_validate else "contents (no schema: kubernetes-validate is missing)")


main()
