"""Policies in numbered versions, each of which says its number in everything that it decides."""

import json
import os
from pathlib import Path

# What is named in one file refers to what is in another: a set of two versions would be noticed.
AUTHORIZATION = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: "jane-{n}"}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "readers-{n}"}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: jane}}]
---
apiVersion: portcullis.dev/v1alpha1
kind: AuthorizationPolicy
metadata: {{name: "no-secrets-{n}"}}
spec:
  effect: Deny
  subjects: [{{kind: User, name: jane}}]
  resourceRules: [{{verbs: [get], apiGroups: [""], resources: [secrets]}}]
  reason: "no secrets, says {n}"
"""
ROLES = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: "readers-{n}"}}
rules: [{{apiGroups: [''], resources: [pods], verbs: [get, list, watch]}}]
"""
STAMP = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: "{stamp}"}}
spec:
  reinvocationPolicy: Never
  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: "Object{{metadata: Object.metadata{{labels: {{'{stamp}': '{n}'}}}}}}"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: "{stamp}"}}
spec: {{policyName: "{stamp}"}}
"""
VALIDATION = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: no-bad-names}}
spec:
  matchConstraints: {{resourceRules: [{{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}
  validations: [{{expression: "object.metadata.name != 'bad'", message: "bad, says {n}"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: no-bad-names}}
spec: {{policyName: no-bad-names, validationActions: [Deny]}}
"""


def put(folder: Path, number, more=""):
    """Puts a version in place of the one before at once, as the kubelet does with a ConfigMap."""
    folder.mkdir(exist_ok=True)
    version = folder / f"..{number}"
    version.mkdir()
    texts = {
        "authorization.yaml": AUTHORIZATION.format(n=number),
        "roles.yaml": ROLES.format(n=number),
        "first.yaml": STAMP.format(n=number, stamp="first"),
        "second.yaml": STAMP.format(n=number, stamp="second"),
        "validation.yaml": VALIDATION.format(n=number),
        "webhooks.json": more or json.dumps({"apiVersion": "v1", "kind": "List", "items": []}),
    }
    for name, text in texts.items():
        (version / name).write_text(text)
        link = folder / name
        if not link.is_symlink():
            link.symlink_to(f"..data/{name}")
    os.symlink(version.name, folder / "..new")
    os.rename(folder / "..new", folder / "..data")
    for old in folder.glob("..[0-9]*"):
        if old != version:
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
