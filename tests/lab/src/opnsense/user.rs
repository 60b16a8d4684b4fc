use std::fmt;

use super::release::Release;

/// What a restricted user may call. Patterns are compared with the request's URI as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// `page-all`.
    All,
    /// `page-dhcp-kea-v4`: reservations, leases and Kea's service.
    Kea,
    /// `page-services-unbound`: everything of Unbound.
    Unbound,
    /// `page-services-dnsresolver-overrides`: host overrides in one spelling only (camelCase until 25.1, snake_case from
    /// 25.7), and not Unbound's service.
    HostOverrides,
}

/// An API key with its secret.
#[derive(Clone)]
pub struct User {
    key: String,
    secret: String,
    privileges: Vec<Privilege>,
    pub(super) read_only: bool,
}

impl fmt::Debug for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("User")
            .field("key", &self.key)
            .field("privileges", &self.privileges)
            .finish_non_exhaustive()
    }
}

impl User {
    /// A user who may do anything.
    #[must_use]
    pub fn admin(key: &str, secret: &str) -> Self {
        Self::with(key, secret, &[Privilege::All])
    }

    /// A user with these privileges only.
    #[must_use]
    pub fn with(key: &str, secret: &str, privileges: &[Privilege]) -> Self {
        Self { key: key.into(), secret: secret.into(), privileges: privileges.into(), read_only: false }
    }

    /// The same user with `user-config-readonly`: everything can be read, every save fails.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    pub(super) fn is(&self, key: &str, secret: &str) -> bool {
        self.key == key && self.secret == secret
    }

    pub(super) fn may(&self, uri: &str, release: Release) -> bool {
        self.privileges.iter().any(|privilege| match privilege {
            Privilege::All => true,
            Privilege::Kea => {
                ["kea/dhcpv4", "kea/leases4", "kea/service"].iter().any(|mask| under(uri, mask))
            }
            Privilege::Unbound => under(uri, "unbound"),
            Privilege::HostOverrides => override_masks(release).iter().any(|mask| under(uri, mask)),
        })
    }
}

/// The pattern `api/MASK/*` of `ACL::urlMatch`: a query string right behind the mask does not match.
fn under(uri: &str, mask: &str) -> bool {
    let rest = uri.strip_prefix("/api/").and_then(|rest| rest.strip_prefix(mask));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn override_masks(release: Release) -> Vec<String> {
    let mut masks = Vec::new();
    for verb in ["search", "get", "set", "add", "del", "toggle"] {
        for (camel, snake) in [("HostOverride", "host_override"), ("HostAlias", "host_alias")] {
            masks.push(match release >= Release::V25_7 {
                true => format!("unbound/settings/{verb}_{snake}"),
                false => format!("unbound/settings/{verb}{camel}"),
            });
        }
    }
    masks
}
