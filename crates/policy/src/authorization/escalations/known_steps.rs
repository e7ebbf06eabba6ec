//! The known kinds of step by which an actor gains the permissions of others, each with its source.

use super::actors::{QuestionName, StepKind, StepTarget, ask, create, patch, update};

const RBAC: &str = "rbac.authorization.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const REGISTRATION: &str = "admissionregistration.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";
const PORTCULLIS: &str = "portcullis.dev";

const EXISTS: &str = "if there is one that can be changed";
/// A limit that can be checked if the Pods are known.
pub(crate) const RUNS: &str = "if a Pod runs as it";
/// Must begin with the same words; the rest is about the API server.
const RUNS_BY_GET: &str = "if a Pod runs as it, and `get` is enough for a WebSocket: before Kubernetes 1.35, \
    or without its feature AuthorizePodWebsocketUpgradeCreatePermission";
const NODE_RUNS: &str = "if a Pod runs as it on a node that can be reached";
const HAS_TOKEN: &str = "if a Secret contains its token";
const TOKEN_CONTROLLER: &str = "if kube-controller-manager issues tokens for Secrets";
const ON_MODE: &str = "only for requests that `impersonate-on:` verbs of this mode allow, too";
const SIGNER: &str = "if kube-controller-manager signs certificates for clients of the API server";
const BOOTSTRAP: &str = "if the API server accepts bootstrap tokens";
const FLUX: &str = "if Flux runs as it and applies objects with its own permissions";
const ARGO_CD: &str = "if Argo CD runs as it, and its AppProject allows it";
const ARGO_WORKFLOWS: &str = "if Argo Workflows creates Pods from it";
const TEKTON: &str = "if Tekton creates Pods from it";
const NEXT_POD: &str = "as soon as a Pod that runs as it is created";
const NEXT_SECRET: &str = "as soon as a Secret with its token is written";
const APPROVED: &str = "once somebody else approves the AccessRequest, and until its time is over";
const WATCHED: &str = "if a gateway watches the AuthorizationPolicies of this cluster";

const WORKLOADS: &str = "pkg/registry/core/pod/strategy.go, plugin/pkg/admission/serviceaccount/admission.go";
const IMPERSONATION: &str = "staging/src/k8s.io/apiserver/pkg/endpoints/filters/impersonation";
const ESCALATION: &str = "pkg/registry/rbac/escalation_check.go";
const EXEC: &str = "pkg/registry/core/pod/rest/subresources.go";
const TOKENS: &str = "pkg/controller/serviceaccount/tokens_controller.go";
const ADMISSION: &str = "staging/src/k8s.io/apiserver/pkg/admission/plugin";
const CSR: &str = "plugin/pkg/admission/certificates, pkg/controller/certificates/approver/sarapprove.go";

macro_rules! workload {
    ($group:literal, $resource:literal) => {
        StepKind::new(
            &[&[create($group, $resource)]],
            StepTarget::AccountsOfNamespace,
            "",
            WORKLOADS,
        )
    };
}

macro_rules! template {
    ($group:literal, $resource:literal) => {
        StepKind::new(
            &[&[update($group, $resource), patch($group, $resource)]],
            StepTarget::AccountsOfNamespace,
            EXISTS,
            WORKLOADS,
        )
    };
}

macro_rules! in_pod {
    ($subresource:literal, $($verb:literal),+) => {
        StepKind::new(
            &[&[$(ask($verb, "", "pods").of($subresource)),+]],
            StepTarget::AccountsOfNamespace,
            RUNS,
            EXEC,
        )
    };
}

/// Custom resources for which any write is sufficient: a controller acts on their content.
macro_rules! by_controller {
    ($group:literal, $resource:literal, $gives:expr, $limit:ident, $source:literal) => {
        StepKind::new(
            &[&[
                create($group, $resource),
                update($group, $resource),
                patch($group, $resource),
            ]],
            $gives,
            $limit,
            $source,
        )
    };
}

/// Cluster-scoped objects for which any write is sufficient.
macro_rules! changes {
    ($group:expr, $resource:literal) => {
        &[
            create($group, $resource).of_cluster(),
            update($group, $resource).of_cluster(),
            patch($group, $resource).of_cluster(),
        ]
    };
}

/// The kinds of step, those with the fewest conditions first.
pub static STEP_KINDS: &[StepKind] = &[
    // Everything at once.
    StepKind::new(
        &[
            &[ask("impersonate", "", "groups").of_cluster().of_target()],
            &[
                ask("impersonate", "", "users").of_cluster(),
                ask("impersonate", "", "serviceaccounts"),
            ],
        ],
        StepTarget::Group,
        "",
        IMPERSONATION,
    ),
    StepKind::new(
        &[
            &[ask("impersonate:user-info", AUTHENTICATION, "groups")
                .of_cluster()
                .of_target()],
            &[ask("impersonate:user-info", AUTHENTICATION, "users").of_cluster()],
        ],
        StepTarget::Group,
        ON_MODE,
        IMPERSONATION,
    ),
    StepKind::new(
        &[
            &[ask("bind", RBAC, "clusterroles").of_cluster().of_target()],
            changes!(RBAC, "clusterrolebindings"),
        ],
        StepTarget::ClusterRole,
        "",
        ESCALATION,
    ),
    StepKind::new(
        &[
            &[ask("bind", RBAC, "clusterroles").of_target()],
            &[
                create(RBAC, "rolebindings"),
                update(RBAC, "rolebindings"),
                patch(RBAC, "rolebindings"),
            ],
        ],
        StepTarget::ClusterRoleInNamespace,
        "",
        ESCALATION,
    ),
    StepKind::new(
        &[
            &[ask("request", RBAC, "clusterroles").of_cluster().of_target()],
            &[create(PORTCULLIS, "accessrequests").of_cluster()],
        ],
        StepTarget::ClusterRole,
        APPROVED,
        "docs/access-requests.md",
    ),
    StepKind::new(
        &[
            &[ask("request", RBAC, "clusterroles").of_target()],
            &[create(PORTCULLIS, "accessrequests").of_cluster()],
        ],
        StepTarget::ClusterRoleInNamespace,
        APPROVED,
        "docs/access-requests.md",
    ),
    StepKind::new(
        &[
            &[ask("bind", RBAC, "roles").of_target()],
            &[
                create(RBAC, "rolebindings"),
                update(RBAC, "rolebindings"),
                patch(RBAC, "rolebindings"),
            ],
        ],
        StepTarget::Role,
        "",
        ESCALATION,
    ),
    StepKind::new(
        &[
            &[ask("escalate", RBAC, "clusterroles").of_cluster().of_target()],
            &[
                update(RBAC, "clusterroles").of_cluster().of_target(),
                patch(RBAC, "clusterroles").of_cluster().of_target(),
            ],
        ],
        StepTarget::WidenedClusterRole,
        "",
        ESCALATION,
    ),
    StepKind::new(
        &[
            &[ask("escalate", RBAC, "roles").of_target()],
            &[
                update(RBAC, "roles").of_target(),
                patch(RBAC, "roles").of_target(),
            ],
        ],
        StepTarget::WidenedRole,
        "",
        ESCALATION,
    ),
    StepKind::new(
        &[changes!(PORTCULLIS, "authorizationpolicies")],
        StepTarget::ClusterAdmin,
        WATCHED,
        "SECURITY.md",
    ),
    // Tokens and certificates.
    StepKind::new(
        &[&[ask("create", "", "serviceaccounts").of("token").of_target()]],
        StepTarget::Account,
        "",
        "pkg/registry/core/serviceaccount/storage/token.go",
    ),
    StepKind::new(
        &[&[ask("impersonate", "", "serviceaccounts").of_target()]],
        StepTarget::Account,
        "",
        IMPERSONATION,
    ),
    StepKind::new(
        &[&[ask("impersonate:serviceaccount", AUTHENTICATION, "serviceaccounts").of_target()]],
        StepTarget::Account,
        ON_MODE,
        IMPERSONATION,
    ),
    StepKind::new(
        &[&[ask("impersonate", "", "users").of_cluster().of_target()]],
        StepTarget::User,
        "",
        IMPERSONATION,
    ),
    StepKind::new(
        &[&[ask("impersonate:user-info", AUTHENTICATION, "users")
            .of_cluster()
            .of_target()]],
        StepTarget::User,
        ON_MODE,
        IMPERSONATION,
    ),
    StepKind::new(
        &[&[
            ask("impersonate:arbitrary-node", AUTHENTICATION, "nodes").of_cluster(),
            ask("impersonate:associated-node", AUTHENTICATION, "nodes").of_cluster(),
        ]],
        StepTarget::Nodes,
        ON_MODE,
        IMPERSONATION,
    ),
    StepKind::new(
        &[
            &[create("", "secrets")],
            &[
                ask("get", "", "secrets"),
                ask("list", "", "secrets"),
                ask("watch", "", "secrets"),
            ],
        ],
        StepTarget::AccountsOfNamespace,
        TOKEN_CONTROLLER,
        TOKENS,
    ),
    StepKind::new(
        &[&[
            ask("get", "", "secrets"),
            ask("list", "", "secrets"),
            ask("watch", "", "secrets"),
        ]],
        StepTarget::AccountsOfNamespace,
        HAS_TOKEN,
        TOKENS,
    ),
    StepKind::new(
        &[
            &[
                ask("approve", CERTIFICATES, "signers")
                    .of_cluster()
                    .named(QuestionName::Is("kubernetes.io/kube-apiserver-client")),
                ask("approve", CERTIFICATES, "signers")
                    .of_cluster()
                    .named(QuestionName::Is("kubernetes.io/*")),
            ],
            &[
                update(CERTIFICATES, "certificatesigningrequests")
                    .of("approval")
                    .of_cluster(),
                patch(CERTIFICATES, "certificatesigningrequests")
                    .of("approval")
                    .of_cluster(),
            ],
            &[create(CERTIFICATES, "certificatesigningrequests").of_cluster()],
        ],
        StepTarget::UsersAndGroups,
        SIGNER,
        CSR,
    ),
    StepKind::new(
        &[
            &[create(CERTIFICATES, "certificatesigningrequests")
                .of("nodeclient")
                .of_cluster()],
            &[create(CERTIFICATES, "certificatesigningrequests").of_cluster()],
        ],
        StepTarget::Nodes,
        SIGNER,
        CSR,
    ),
    // Pods.
    workload!("", "pods"),
    workload!("", "replicationcontrollers"),
    workload!("apps", "deployments"),
    workload!("apps", "daemonsets"),
    workload!("apps", "statefulsets"),
    workload!("apps", "replicasets"),
    workload!("batch", "jobs"),
    workload!("batch", "cronjobs"),
    template!("", "replicationcontrollers"),
    template!("apps", "deployments"),
    template!("apps", "daemonsets"),
    template!("apps", "statefulsets"),
    template!("apps", "replicasets"),
    template!("batch", "cronjobs"),
    in_pod!("exec", "create"),
    in_pod!("attach", "create"),
    in_pod!("ephemeralcontainers", "update", "patch"),
    StepKind::new(
        &[&[
            ask("get", "", "pods").of("exec"),
            ask("get", "", "pods").of("attach"),
        ]],
        StepTarget::AccountsOfNamespace,
        RUNS_BY_GET,
        EXEC,
    ),
    StepKind::new(
        &[&[update("", "pods"), patch("", "pods")]],
        StepTarget::AccountsOfNamespace,
        RUNS,
        WORKLOADS,
    ),
    StepKind::new(
        &[&[
            ask("get", "", "nodes").of("proxy").of_cluster(),
            ask("create", "", "nodes").of("proxy").of_cluster(),
        ]],
        StepTarget::AllAccounts,
        NODE_RUNS,
        "pkg/kubelet/server/auth.go",
    ),
    StepKind::new(
        &[],
        StepTarget::AccountsOnNode,
        NODE_RUNS,
        "plugin/pkg/auth/authorizer/node/node_authorizer.go",
    ),
    // Controllers of other projects that act on the objects of their users.
    by_controller!(
        "kustomize.toolkit.fluxcd.io",
        "kustomizations",
        StepTarget::Controller("flux-system", "kustomize-controller"),
        FLUX,
        "https://fluxcd.io/flux/components/kustomize/kustomizations/"
    ),
    by_controller!(
        "helm.toolkit.fluxcd.io",
        "helmreleases",
        StepTarget::Controller("flux-system", "helm-controller"),
        FLUX,
        "https://fluxcd.io/flux/components/helm/helmreleases/"
    ),
    by_controller!(
        "argoproj.io",
        "applications",
        StepTarget::ControllerOfNamespace("argocd", "argocd-application-controller"),
        ARGO_CD,
        "https://argo-cd.readthedocs.io/en/stable/operator-manual/security/"
    ),
    by_controller!(
        "argoproj.io",
        "workflows",
        StepTarget::AccountsOfNamespace,
        ARGO_WORKFLOWS,
        "https://argo-workflows.readthedocs.io/en/latest/service-accounts/"
    ),
    by_controller!(
        "tekton.dev",
        "taskruns",
        StepTarget::AccountsOfNamespace,
        TEKTON,
        "https://tekton.dev/docs/pipelines/taskruns/"
    ),
    by_controller!(
        "tekton.dev",
        "pipelineruns",
        StepTarget::AccountsOfNamespace,
        TEKTON,
        "https://tekton.dev/docs/pipelines/pipelineruns/"
    ),
    // Intercepting the requests of others.
    StepKind::new(
        &[changes!(REGISTRATION, "mutatingwebhookconfigurations")],
        StepTarget::AllAccounts,
        NEXT_POD,
        ADMISSION,
    ),
    StepKind::new(
        &[
            changes!(REGISTRATION, "mutatingadmissionpolicies"),
            changes!(REGISTRATION, "mutatingadmissionpolicybindings"),
        ],
        StepTarget::AllAccounts,
        NEXT_POD,
        ADMISSION,
    ),
    StepKind::new(
        &[changes!(REGISTRATION, "validatingwebhookconfigurations")],
        StepTarget::AllAccounts,
        NEXT_SECRET,
        ADMISSION,
    ),
    StepKind::new(
        &[changes!("apiregistration.k8s.io", "apiservices")],
        StepTarget::AllAccounts,
        NEXT_SECRET,
        "staging/src/k8s.io/kube-aggregator/pkg/apiserver/handler_proxy.go",
    ),
    StepKind::new(
        &[&[create("", "secrets")]],
        StepTarget::Bootstrappers,
        BOOTSTRAP,
        "plugin/pkg/auth/authenticator/token/bootstrap/bootstrap.go",
    ),
];
