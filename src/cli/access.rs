//! Where `who-can` and `what-can` ask.

use portcullis_policy::authorization::Within;

/// `-n` and `-A`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct NamespaceArguments {
    /// The namespace [default: that of the context, or else `default`]
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// In any namespace, or in none.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
}

// === impl NamespaceArguments ===

impl NamespaceArguments {
    /// `default` is the namespace where none is named, such as that of a context.
    pub(crate) fn within(&self, default: Option<&str>) -> Within {
        if self.all_namespaces {
            return Within::AnyNamespace;
        }
        let named = self
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        Within::Namespace(named.or(default).unwrap_or("default").to_owned())
    }

    /// Whether it was said on the command line.
    pub(crate) const fn is_named(&self) -> bool {
        self.namespace.is_some() || self.all_namespaces
    }
}
