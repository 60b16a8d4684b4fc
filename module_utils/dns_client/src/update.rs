//! Dynamic updates (RFC 2136): one record set changed as a whole, if it still is what it was.

use std::time::{SystemTime, UNIX_EPOCH};

use deadline::Deadline;
use hickory_proto::op::{Message, OpCode, Query, ResponseCode, UpdateMessage};
use hickory_proto::rr::rdata::tsig::TsigError;
use hickory_proto::rr::{self, DNSClass, Name, RData, Record};

use crate::data::{RecordData, RecordSet, RecordType};
use crate::error::{Error, Refusal};
use crate::key::Key;
use crate::name;
use crate::server::Server;

/// The change of one record set. The server carries it out only where it finds `before`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    pub zone: String,
    pub name: String,
    pub rr: RecordType,
    /// What was read; `None` when there was nothing.
    pub before: Option<RecordSet>,
    /// What is to be there instead; empty to remove the set.
    pub after: Vec<RecordData>,
    /// Seconds that a resolver may keep it.
    pub ttl: u32,
}

impl Server {
    /// Sends an update signed with `key`. An answer that is lost on the way is no harm: it is sent again, and a second
    /// one does nothing, since it no longer finds `before`.
    ///
    /// # Errors
    /// [`Error::Refused`] in the server's words, [`Error::Overtaken`] when another writer was faster.
    pub fn update(&self, key: &Key, update: &Update, deadline: &Deadline) -> Result<(), Error> {
        match self.send_update(key, update, true, deadline) {
            Err(lost) if lost.may_have_happened() => match self.send_update(key, update, true, deadline) {
                Ok(()) => Ok(()),
                // The first one may have been carried out: reading tells.
                Err(Error::Overtaken { .. }) => Ok(()),
                Err(again) if again.may_have_happened() => Err(lost),
                Err(refused) => Err(refused),
            },
            outcome => outcome,
        }
    }

    /// Asks whether an update would be taken, without its changes: it proves the key and what was read. (What single
    /// names a key may change, `update-policy`, a server looks at only for real changes.)
    ///
    /// # Errors
    /// As [`update`](Self::update).
    pub fn rehearse(&self, key: &Key, update: &Update, deadline: &Deadline) -> Result<(), Error> {
        self.send_update(key, update, false, deadline)
    }

    fn send_update(
        &self,
        key: &Key,
        update: &Update,
        changes: bool,
        deadline: &Deadline,
    ) -> Result<(), Error> {
        let fault = |why: &dyn std::fmt::Display| Error::protocol(&self.to_string(), why);
        let mut message = message(update, changes)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let verifier = message.finalize(&key.signer, now).map_err(|error| fault(&error))?;
        let octets = message.to_vec().map_err(|error| fault(&error))?;
        self.count("UPDATE");
        let octets = self.over_tcp(&octets, deadline)?;
        let answer = self.read(&octets)?;
        if answer.id != message.id || answer.op_code != OpCode::Update {
            return Err(fault(&"it answers something else"));
        }
        self.judge_update(&answer, key, update, now)?;
        let mut verifier = verifier.ok_or_else(|| fault(&"the update was not signed"))?;
        verifier.verify(&octets).map(drop).map_err(|error| {
            let refusal = Refusal::Unsigned { key: key.name().to_owned(), why: error.to_string() };
            Error::Refused { server: self.to_string(), what: update.to_string(), refusal }
        })
    }

    fn judge_update(&self, answer: &Message, key: &Key, update: &Update, now: u64) -> Result<(), Error> {
        let (server, what) = (self.to_string(), update.to_string());
        if let Some(refusal) = fault_of_key(answer, key, now) {
            return Err(Error::Refused { server, what, refusal });
        }
        let zone = update.zone.clone();
        let refusal = match answer.response_code {
            ResponseCode::NoError => return Ok(()),
            code @ (ResponseCode::YXDomain
            | ResponseCode::YXRRSet
            | ResponseCode::NXRRSet
            | ResponseCode::NXDomain) => {
                return Err(Error::Overtaken { server, what, code: code.to_string() });
            }
            ResponseCode::Refused => Refusal::NotAllowed,
            ResponseCode::NotAuth => Refusal::NotPrimary { zone },
            ResponseCode::NotZone => Refusal::NotInZone { zone },
            ResponseCode::NotImp => Refusal::NoUpdates,
            ResponseCode::ServFail => Refusal::Failed,
            code => Refusal::Code(code.to_string()),
        };
        Err(Error::Refused { server, what, refusal })
    }
}

impl std::fmt::Display for Update {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "update of {} {} in zone {}", self.name, self.rr, self.zone)
    }
}

/// What the signature of a refusal says of ours (RFC 8945, 5.2). The refusal itself need not be signed.
fn fault_of_key(answer: &Message, key: &Key, now: u64) -> Option<Refusal> {
    let tsig = &answer.signature.as_ref()?.data;
    let name = key.name().to_owned();
    match tsig.error.as_ref()? {
        TsigError::BadKey => Some(Refusal::UnknownKey { key: name, algorithm: key.algorithm().as_str() }),
        TsigError::BadSig | TsigError::BadTrunc => Some(Refusal::WrongSecret { key: name }),
        TsigError::BadTime => {
            let theirs = (tsig.other.len() == 6)
                .then(|| tsig.other.iter().fold(0, |time, octet| time << 8 | u64::from(*octet)));
            Some(Refusal::WrongClock { ours: now, theirs })
        }
        TsigError::Unknown(0) => None,
        TsigError::Unknown(code) => Some(Refusal::Code(format!("TSIG error {code}"))),
    }
}

/// RFC 2136, 2.4 and 2.5: what must be so, and what is to change.
fn message(update: &Update, changes: bool) -> Result<Message, Error> {
    let (name, rr) = (name::parse(&update.name)?, update.rr.code());
    let mut message = Message::query();
    message.metadata.op_code = OpCode::Update;
    message.metadata.recursion_desired = false;
    message.add_zone(Query::query(name::parse(&update.zone)?, rr::RecordType::SOA));
    match &update.before {
        Some(before) => message.add_pre_requisites(
            before.values.iter().map(|value| Record::from_rdata(name.clone(), 0, value.wire.clone())),
        ),
        None => message.add_pre_requisite(empty(&name, rr, DNSClass::NONE)),
    }
    if !update.after.is_empty() {
        // Beside an alias a server drops a record, and beside records an alias, without a word (3.4.2.2).
        match (update.rr, &update.before) {
            (RecordType::Cname, None) => {
                message.add_pre_requisite(empty(&name, rr::RecordType::ANY, DNSClass::NONE));
            }
            (RecordType::Cname, Some(_)) => {}
            _ => message.add_pre_requisite(empty(&name, rr::RecordType::CNAME, DNSClass::NONE)),
        }
    }
    if changes {
        message.add_update(empty(&name, rr, DNSClass::ANY));
        for value in &update.after {
            message.add_update(Record::from_rdata(name.clone(), update.ttl, value.wire.clone()));
        }
    }
    Ok(message)
}

/// A record without data, which stands for a whole set.
fn empty(name: &Name, rr: rr::RecordType, class: DNSClass) -> Record<RData> {
    let mut record = Record::update0(name.clone(), 0, rr);
    record.dns_class = class;
    record
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::TSigResponseContext;

    use super::*;
    use crate::key::Algorithm;

    const NOW: u64 = 1_700_000_000;

    fn key() -> Key {
        Key::new("anvil", Algorithm::HmacSha256, &"c2VjcmV0".into()).unwrap()
    }

    /// What a refusal with this error in its signature is understood as.
    fn told(error: TsigError, other: Vec<u8>) -> String {
        let key = key();
        let mut answer = Message::error_msg(7, OpCode::Update, ResponseCode::NotAuth);
        let context = TSigResponseContext::new(7, NOW, key.signer.clone(), Vec::new(), None);
        let mut signature = context.sign(&answer.to_vec().unwrap()).unwrap();
        signature.data.error = Some(error);
        signature.data.other = other;
        answer.set_signature(signature);
        fault_of_key(&answer, &key, NOW).unwrap().to_string()
    }

    #[test]
    fn each_fault_of_a_key_says_what_to_do() {
        insta::assert_snapshot!(told(TsigError::BadKey, vec![]), @"it knows no key `anvil` with hmac-sha256 (NOTAUTH, BADKEY): both must be as in its configuration");
        insta::assert_snapshot!(told(TsigError::BadSig, vec![]), @"the key `anvil` has another secret there (NOTAUTH, BADSIG): give the one of its configuration");
        let theirs = (NOW - 7200).to_be_bytes()[2..].to_vec();
        insta::assert_snapshot!(told(TsigError::BadTime, theirs), @"the clocks are 7200 s apart (NOTAUTH, BADTIME): it has 1699992800 s since 1970, this machine 1700000000 s; set the wrong one");
        insta::assert_snapshot!(told(TsigError::BadTime, vec![]), @"its clock and this machine's are too far apart (NOTAUTH, BADTIME): set the wrong one");
        insta::assert_snapshot!(told(TsigError::Unknown(99), vec![]), @"it answers TSIG error 99");
    }

    #[test]
    fn refusals_without_a_fault_of_the_key_are_told_apart() {
        let server = Server::new("127.0.0.1", 53).unwrap();
        let update = Update {
            zone: "example.net".into(),
            name: "web01.example.net".into(),
            rr: RecordType::A,
            before: None,
            after: Vec::new(),
            ttl: 60,
        };
        let told = |code| {
            let answer = Message::error_msg(7, OpCode::Update, code);
            server.judge_update(&answer, &key(), &update, NOW).unwrap_err().to_string()
        };
        insta::assert_snapshot!(told(ResponseCode::NotAuth), @"DNS server 127.0.0.1:53, update of web01.example.net A in zone example.net: it is not the primary server of the zone example.net (NOTAUTH): updates go to the primary");
        insta::assert_snapshot!(told(ResponseCode::NotZone), @"DNS server 127.0.0.1:53, update of web01.example.net A in zone example.net: the name is not in the zone example.net (NOTZONE): leave `zone` out to have it found");
        insta::assert_snapshot!(told(ResponseCode::NotImp), @"DNS server 127.0.0.1:53, update of web01.example.net A in zone example.net: it takes no dynamic updates (NOTIMP)");
        insta::assert_snapshot!(told(ResponseCode::ServFail), @"DNS server 127.0.0.1:53, update of web01.example.net A in zone example.net: it could not do it (SERVFAIL), and its log says why; a BIND must be able to write the zone's journal (on Debian below /var/lib/bind, not /etc/bind)");
    }
}
