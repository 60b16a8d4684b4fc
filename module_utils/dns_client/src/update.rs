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
