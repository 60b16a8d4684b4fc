use std::fmt;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// A name or an address, and a port.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The name that known_hosts files have for it: `host`, or `[host]:port` beside port 22 (sshd(8)).
    #[must_use]
    pub fn known_as(&self) -> String {
        let host = self.host.to_ascii_lowercase();
        if self.port == 22 { host } else { format!("[{host}]:{}", self.port) }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hosts_leaves_the_usual_port_out() {
        assert_eq!(Address::new("Web01", 22).known_as(), "web01");
        assert_eq!(Address::new("10.20.0.40", 2222).known_as(), "[10.20.0.40]:2222");
        assert_eq!(Address::new("fd00::1", 22).known_as(), "fd00::1");
        assert_eq!(Address::new("fd00::1", 22).to_string(), "[fd00::1]:22");
    }
}
