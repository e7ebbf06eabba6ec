//! One API server with one gateway, shared by the tests that need no other.
//!
//! Starting both takes seconds, so the tests divide them among themselves:
//! each has users of its own, and policies about these users alone.
//!
//! ```text
//!                    request of a user
//!                           │
//!                   kube-apiserver          AuthorizationConfiguration
//!   no group `via:…`  │     │ group `via:R`
//!                 portcullis  R             a webhook entry for each route: how it
//!                     │     │               calls, in which version, what it does
//!                     └──┬──┘               when the call fails; nothing is cached
//!                     gateway
//!                        │ no opinion
//!                      RBAC                 the API server's own
//! ```

use crate::binaries::{self, Binaries};
use crate::cluster::{Cluster, User};
use crate::harness::folder::Folder;
use crate::harness::gateway::{Gateway, Keys, Setup};
use crate::harness::ports;
use crate::lease::{Lease, Logs};
use crate::routes::{self, Route};
use crate::{callers, decisions, failures, hostile, impersonation, limits, never_deny, reload, selectors};
use std::net::SocketAddr;
use std::sync::LazyLock;

/// The namespaces that exist.
const NAMESPACES: [&str; 2] = ["kittens", "puppies"];

/// What one file of tests brings to the shared servers.
pub(crate) struct Part {
    /// Its name, that of its manifest too.
    pub(crate) name: &'static str,
    pub(crate) users: &'static [User],
    pub(crate) policies: &'static str,
}

const PARTS: [Part; 9] = [
    callers::PART,
    decisions::PART,
    failures::PART,
    hostile::PART,
    impersonation::PART,
    limits::PART,
    never_deny::PART,
    reload::PART,
    selectors::PART,
];

/// The shared servers.
pub(crate) struct Scenario {
    pub(crate) cluster: Cluster,
    pub(crate) gateway: Gateway,
    keys: Keys,
    routes: Vec<Route>,
}

static SHARED: LazyLock<Scenario> = LazyLock::new(|| Scenario::start(&binaries::find().unwrap()));

/// The shared servers, started by the first test that asks; `None` without
/// the programs.
pub(crate) fn shared() -> Option<Lease<Scenario>> {
    Lease::of(&SHARED)
}

impl Scenario {
    fn start(binaries: &Binaries) -> Self {
        let folder = Folder::new("shared");
        let keys = Keys::new();
        let address = ports::free();
        let routes = routes::all(&keys, &folder, address);
        routes::write_kubeconfigs(&routes, &keys, &folder);
        let manifests: Vec<_> = PARTS
            .iter()
            .filter(|part| !part.policies.is_empty())
            .map(|part| (format!("{}.yaml", part.name), part.policies))
            .collect();
        let manifests: Vec<_> = manifests
            .iter()
            .map(|(name, text)| (name.as_str(), *text))
            .collect();
        let gateway = Gateway::start(&Setup {
            folder: &folder.path().join("gateway"),
            address,
            keys: &keys,
            callers: routes.iter().filter_map(|route| route.caller.clone()).collect(),
            manifests: &manifests,
            more: serde_json::Value::Null,
        });
        let users: Vec<User> = PARTS.iter().flat_map(|part| part.users).copied().collect();
        let configuration = folder.write("authorization.yaml", routes::configuration(&routes, &folder));
        let flag = format!("--authorization-config={}", configuration.display());
        let cluster = Cluster::start(binaries, folder, &users, &[flag]);
        for namespace in NAMESPACES {
            cluster.create_namespace(namespace);
        }
        Self {
            cluster,
            gateway,
            keys,
            routes,
        }
    }

    /// Starts another gateway, where a route calls that has one of its own.
    /// It lets everyone of that route read config maps.
    pub(crate) fn gateway_of_route(&self, name: &str) -> Gateway {
        let folder = self.cluster.folder().join(name.replace(':', "-"));
        Gateway::start(&Setup {
            folder: &folder,
            address: self.address_of(name),
            keys: &self.keys,
            callers: Vec::new(),
            manifests: &[("callers.yaml", callers::PART.policies)],
            more: serde_json::Value::Null,
        })
    }

    fn address_of(&self, name: &str) -> SocketAddr {
        self.routes
            .iter()
            .find(|route| route.group == name)
            .unwrap()
            .address
    }
}

impl Logs for Scenario {
    fn logs(&self) -> String {
        format!("{}{}", self.gateway.tail(), self.cluster.tails())
    }
}
