//! Questions.

use deadline::Deadline;
use hickory_proto::op::{DEFAULT_MAX_PAYLOAD_LEN, Edns, Message, OpCode, Query, ResponseCode};
use hickory_proto::rr::{self, RData, Record};

use crate::data::{RecordData, RecordSet, RecordType};
use crate::error::{Error, Refusal};
use crate::name;
use crate::server::Server;

/// Whom a question is meant for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The server itself: what it keeps in its own zones.
    Authoritative,
    /// A resolver: it asks others where it does not know.
    Recursive,
}

/// What a server answered. That a name does not exist is an answer too: one without records.
#[derive(Clone, Debug)]
pub struct Answer {
    records: Vec<Record>,
    /// The zone that the answer comes from, where the server says so (it does when there is nothing).
    zone: Option<String>,
}

impl Answer {
    /// The records of this name and type.
    #[must_use]
    pub fn set(&self, name: &str, rr: RecordType) -> Option<RecordSet> {
        let own = self.records.iter().filter(|record| name::text(&record.name) == name);
        let values = own.filter_map(|record| Some((record.ttl, RecordData::of_wire(record.data.clone())?)));
        RecordSet::of(values.filter(|(_, value)| value.rr() == rr))
    }

    /// What the name is an alias of (CNAME).
    #[must_use]
    pub fn alias(&self, name: &str) -> Option<String> {
        self.set(name, RecordType::Cname).map(|set| set.to_string())
    }
}

impl Server {
    /// The records of a name and type, with the CNAME when the name is an alias.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Refused`], and for [`Ask::Authoritative`] [`Error::NotAuthoritative`].
    pub fn query(&self, name: &str, rr: RecordType, ask: Ask, deadline: &Deadline) -> Result<Answer, Error> {
        self.ask(name, rr.code(), ask, deadline)
    }

    /// The zone of this server that a name is in, whether the name exists or not.
    ///
    /// # Errors
    /// [`Error::NotAuthoritative`] when it is in none.
    pub fn zone_of(&self, name: &str, deadline: &Deadline) -> Result<String, Error> {
        let answer = self.ask(name, rr::RecordType::SOA, Ask::Authoritative, deadline)?;
        if answer.alias(name).is_some() {
            // The SOA beside an alias is of its target's zone; an alias stands at no zone's head.
            let (_, above) = name.split_once('.').unwrap_or_default();
            return self.zone_of(above, deadline);
        }
        let not_here = || Error::NotAuthoritative { server: self.to_string(), name: name.to_owned() };
        answer.zone.ok_or_else(not_here)
    }

    fn ask(&self, name: &str, rr: rr::RecordType, ask: Ask, deadline: &Deadline) -> Result<Answer, Error> {
        let mut question = Message::query();
        question.metadata.recursion_desired = ask == Ask::Recursive;
        question.add_query(Query::query(name::parse(name)?, rr));
        question.edns.get_or_insert_with(Edns::new).set_max_payload(DEFAULT_MAX_PAYLOAD_LEN);
        let octets = question.to_vec().map_err(|error| Error::protocol(&self.to_string(), error))?;
        let fits = |answer: &[u8]| Message::from_vec(answer).is_ok_and(|answer| answers(&answer, &question));
        let mut answer = self.over_udp(&octets, fits, deadline)?;
        if self.read(&answer)?.truncation {
            answer = self.over_tcp(&octets, deadline)?;
        }
        let answer = self.read(&answer)?;
        if !answers(&answer, &question) {
            return Err(Error::protocol(&self.to_string(), "it answers another question"));
        }
        self.judge(answer, name, rr, ask)
    }

    fn judge(&self, answer: Message, name: &str, rr: rr::RecordType, ask: Ask) -> Result<Answer, Error> {
        let found = matches!(answer.response_code, ResponseCode::NoError | ResponseCode::NXDomain);
        let not_ours = match answer.response_code {
            ResponseCode::Refused | ResponseCode::NotAuth => true,
            _ => found && !answer.authoritative,
        };
        if ask == Ask::Authoritative && not_ours {
            return Err(Error::NotAuthoritative { server: self.to_string(), name: name.to_owned() });
        }
        if !found {
            let what = format!("question for {name} {rr}");
            let refusal = Refusal::Code(answer.response_code.to_string());
            return Err(Error::Refused { server: self.to_string(), what, refusal });
        }
        let mut heads = answer.answers.iter().chain(&answer.authorities);
        let head = heads.find(|record| matches!(record.data, RData::SOA(_)));
        let zone = head.map(|record| name::text(&record.name));
        Ok(Answer { zone, records: answer.answers })
    }

    pub(crate) fn read(&self, octets: &[u8]) -> Result<Message, Error> {
        Message::from_vec(octets).map_err(|error| Error::protocol(&self.to_string(), error))
    }
}

fn answers(answer: &Message, question: &Message) -> bool {
    answer.id == question.id && answer.op_code == OpCode::Query && answer.queries == question.queries
}
