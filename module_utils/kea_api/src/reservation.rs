//! One host reservation, as Kea's configuration holds it.

use std::net::Ipv4Addr;

use net_types::{ClientId, HostIdentifier, MacAddress};
use serde_json::{Map, Value, json};

/// What `config-get` shows for an address that was not given (Kea `src/lib/dhcpsrv/host.cc`).
const NO_ADDRESS: &str = "0.0.0.0";

/// What a host may be known by; exactly one is given (doc/sphinx/arm/dhcp4-srv.rst, host reservations).
const IDENTIFIERS: [&str; 5] = ["hw-address", "client-id", "duid", "circuit-id", "flex-id"];

/// A reservation of a subnet: the JSON object itself, so that keys this crate does not know survive an edit.
///
/// The readers give Kea's expanded defaults (`""`, `0.0.0.0`, `[]`) as "not set".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservation(Map<String, Value>);

impl Reservation {
    /// A reservation with nothing but its identifier.
    #[must_use]
    pub fn new(host: impl Into<HostIdentifier>) -> Self {
        let mut reservation = Self::default();
        reservation.set_host(&host.into());
        reservation
    }

    /// The reservation in a JSON object of `reservations[]`; `None` for anything else.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        value.as_object().cloned().map(Self)
    }

    #[must_use]
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// The hardware address; `None` when another identifier is used or it is not six bytes (which Kea
    /// accepts, and never matches).
    #[must_use]
    pub fn mac(&self) -> Option<MacAddress> {
        self.text("hw-address").and_then(|text| text.parse().ok())
    }

    #[must_use]
    pub fn client_id(&self) -> Option<ClientId> {
        self.text("client-id").and_then(|text| text.parse().ok())
    }

    /// The hardware address or the client identifier; `None` for any other identifier.
    #[must_use]
    pub fn host(&self) -> Option<HostIdentifier> {
        self.mac().map(Into::into).or_else(|| self.client_id().map(Into::into))
    }

    /// The identifier as Kea's configuration spells it, for messages: `hw-address 52:54:00:ab:cd:ef`.
    #[must_use]
    pub fn identifier(&self) -> String {
        IDENTIFIERS
            .iter()
            .find_map(|key| self.text(key).map(|text| format!("{key} {text}")))
            .unwrap_or_else(|| "no identifier".to_owned())
    }

    #[must_use]
    pub fn ip(&self) -> Option<Ipv4Addr> {
        self.address("ip-address")
    }

    #[must_use]
    pub fn hostname(&self) -> &str {
        self.text("hostname").unwrap_or_default()
    }

    /// siaddr of the answers to this host.
    #[must_use]
    pub fn next_server(&self) -> Option<Ipv4Addr> {
        self.address("next-server")
    }

    /// The BOOTP `file` field of the answers to this host, not option 67.
    #[must_use]
    pub fn boot_file_name(&self) -> &str {
        self.text("boot-file-name").unwrap_or_default()
    }

    /// The data of an option of `option-data`, by its name in DHCPv4's option space.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options().find(|option| option["name"] == name).and_then(|option| option["data"].as_str())
    }

    /// The entries of `option-data`.
    pub fn options(&self) -> impl Iterator<Item = &Value> {
        self.0.get("option-data").and_then(Value::as_array).into_iter().flatten()
    }

    /// The names in `client-classes`.
    pub fn client_classes(&self) -> impl Iterator<Item = &str> {
        self.0.get("client-classes").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    #[must_use]
    pub fn user_context(&self) -> Option<&Map<String, Value>> {
        self.0.get("user-context").and_then(Value::as_object)
    }

    /// In the place of any other identifier: Kea takes one.
    pub fn set_host(&mut self, host: &HostIdentifier) {
        IDENTIFIERS.iter().for_each(|key| drop(self.0.shift_remove(*key)));
        let (key, text) = match host {
            HostIdentifier::Mac(mac) => ("hw-address", mac.to_string()),
            HostIdentifier::ClientId(client_id) => ("client-id", client_id.to_string()),
        };
        self.0.insert(key.to_owned(), json!(text));
    }

    pub fn set_ip(&mut self, ip: Ipv4Addr) {
        self.0.insert("ip-address".to_owned(), json!(ip.to_string()));
    }

    /// An empty name removes it.
    pub fn set_hostname(&mut self, hostname: &str) {
        self.set_text("hostname", hostname);
    }

    /// `None` removes it: Kea refuses an empty one in a reservation.
    pub fn set_next_server(&mut self, address: Option<Ipv4Addr>) {
        self.set_text("next-server", &address.map(|address| address.to_string()).unwrap_or_default());
    }

    /// An empty name removes it.
    pub fn set_boot_file_name(&mut self, name: &str) {
        self.set_text("boot-file-name", name);
    }

    /// Sets an option of `option-data`; empty data removes it. Other options stay.
    pub fn set_option(&mut self, name: &str, data: &str) {
        let mut options: Vec<Value> =
            self.options().filter(|option| option["name"] != name).cloned().collect();
        if !data.is_empty() {
            options.push(json!({"name": name, "data": data}));
        }
        self.set_options(options);
    }

    /// Replaces `option-data` whole.
    pub fn set_options(&mut self, options: Vec<Value>) {
        self.0.insert("option-data".to_owned(), Value::Array(options));
    }

    /// Replaces `client-classes` whole.
    pub fn set_client_classes(&mut self, names: Vec<String>) {
        self.0.insert("client-classes".to_owned(), names.into());
    }

    /// Sets a key of `user-context`; `Null` removes it. Other keys stay.
    pub fn set_context(&mut self, key: &str, value: Value) {
        let mut context = self.user_context().cloned().unwrap_or_default();
        if value.is_null() {
            context.shift_remove(key);
        } else {
            context.insert(key.to_owned(), value);
        }
        if context.is_empty() {
            self.0.shift_remove("user-context");
        } else {
            self.0.insert("user-context".to_owned(), Value::Object(context));
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn address(&self, key: &str) -> Option<Ipv4Addr> {
        self.text(key).filter(|text| *text != NO_ADDRESS).and_then(|text| text.parse().ok())
    }

    fn set_text(&mut self, key: &str, text: &str) {
        if text.is_empty() {
            self.0.shift_remove(key);
        } else {
            self.0.insert(key.to_owned(), json!(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back() -> Reservation {
        Reservation::from_value(&json!({
            "boot-file-name": "", "client-classes": [], "hostname": "web01",
            "hw-address": "02:a5:00:00:00:65", "ip-address": "10.20.0.21", "next-server": "0.0.0.0",
            "option-data": [], "server-hostname": ""
        }))
        .unwrap()
    }

    #[test]
    fn the_defaults_of_a_read_back_are_not_set() {
        let reservation = read_back();
        assert_eq!(reservation.next_server(), None);
        assert_eq!(reservation.boot_file_name(), "");
        assert_eq!(reservation.option("tftp-server-name"), None);
        assert_eq!(reservation.user_context(), None);
        assert_eq!(reservation.identifier(), "hw-address 02:a5:00:00:00:65");
        assert_eq!(reservation.ip(), Some(Ipv4Addr::new(10, 20, 0, 21)));
    }

    #[test]
    fn an_edit_keeps_what_it_does_not_know() {
        let mut reservation = read_back();
        reservation.set_next_server(Some(Ipv4Addr::new(10, 20, 0, 2)));
        reservation.set_boot_file_name("grubx64.efi");
        reservation.set_option("tftp-server-name", "10.20.0.2");
        reservation.set_option("tftp-server-name", "10.20.0.3");
        reservation.set_context("comment", json!("front end"));
        let value = reservation.clone().into_value();
        assert_eq!(value["client-classes"], json!([]));
        assert_eq!(value["option-data"], json!([{"name": "tftp-server-name", "data": "10.20.0.3"}]));
        assert_eq!(value["user-context"], json!({"comment": "front end"}));
        reservation.set_next_server(None);
        reservation.set_option("tftp-server-name", "");
        reservation.set_context("comment", Value::Null);
        let value = reservation.into_value();
        assert_eq!(value.get("next-server"), None);
        assert_eq!(value["option-data"], json!([]));
        assert_eq!(value.get("user-context"), None);
    }

    #[test]
    fn other_identifiers_are_no_mac() {
        for (value, identifier) in [
            (json!({"client-id": "01:02:03"}), "client-id 01:02:03"),
            (json!({"hw-address": "01:52:54:00:ab:cd:ef"}), "hw-address 01:52:54:00:ab:cd:ef"),
            (json!({"ip-address": "10.0.0.1"}), "no identifier"),
        ] {
            let reservation = Reservation::from_value(&value).unwrap();
            assert_eq!(reservation.mac(), None, "{value}");
            assert_eq!(reservation.identifier(), identifier);
        }
    }
}
