//! The option table: one definition per option, from which come coercion, `--options`, the
//! documentation and the checks.

use serde_json::Value;

/// Ansible's option types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Str,
    Int,
    Float,
    Bool,
    /// A string with `~` and `$VAR` expanded on the machine that runs the module.
    Path,
    List,
    Dict,
    /// Taken as it comes.
    Raw,
    /// A dict or list is turned into JSON text.
    Json,
}

impl Kind {
    /// The word in Ansible's documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Str => "str",
            Self::Int => "int",
            Self::Float => "float",
            Self::Bool => "bool",
            Self::Path => "path",
            Self::List => "list",
            Self::Dict => "dict",
            Self::Raw => "raw",
            Self::Json => "json",
        }
    }
}

/// One option.
#[derive(Clone, Debug)]
pub struct Opt {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) elements: Option<Kind>,
    pub(crate) doc: Vec<String>,
    pub(crate) required: bool,
    pub(crate) default: Option<Value>,
    pub(crate) choices: Vec<&'static str>,
    pub(crate) aliases: Vec<&'static str>,
    pub(crate) env: Vec<&'static str>,
    pub(crate) no_log: bool,
    pub(crate) quoted: Option<&'static str>,
    pub(crate) sub: Table,
}

impl Opt {
    #[must_use]
    pub fn new(name: &'static str, kind: Kind) -> Self {
        Self {
            name,
            kind,
            elements: None,
            doc: Vec::new(),
            required: false,
            default: None,
            choices: Vec::new(),
            aliases: Vec::new(),
            env: Vec::new(),
            no_log: false,
            quoted: None,
            sub: Table::default(),
        }
    }

    #[must_use]
    pub fn str(name: &'static str) -> Self {
        Self::new(name, Kind::Str)
    }

    #[must_use]
    pub fn int(name: &'static str) -> Self {
        Self::new(name, Kind::Int)
    }

    #[must_use]
    pub fn float(name: &'static str) -> Self {
        Self::new(name, Kind::Float)
    }

    #[must_use]
    pub fn bool(name: &'static str) -> Self {
        Self::new(name, Kind::Bool)
    }

    #[must_use]
    pub fn path(name: &'static str) -> Self {
        Self::new(name, Kind::Path)
    }

    #[must_use]
    pub fn raw(name: &'static str) -> Self {
        Self::new(name, Kind::Raw)
    }

    #[must_use]
    pub fn list(name: &'static str, elements: Kind) -> Self {
        Self { elements: Some(elements), ..Self::new(name, Kind::List) }
    }

    /// A free-form dictionary.
    #[must_use]
    pub fn dict(name: &'static str) -> Self {
        Self::new(name, Kind::Dict)
    }

    /// A dictionary with named sub-options.
    #[must_use]
    pub fn dict_of(name: &'static str, sub: Table) -> Self {
        Self { sub, ..Self::new(name, Kind::Dict) }
    }

    /// A list of dictionaries with named sub-options.
    #[must_use]
    pub fn list_of(name: &'static str, sub: Table) -> Self {
        Self { sub, ..Self::list(name, Kind::Dict) }
    }

    /// One paragraph of documentation, a full sentence in Ansible markup; call again for more.
    #[must_use]
    pub fn doc(mut self, paragraph: impl Into<String>) -> Self {
        self.doc.push(paragraph.into());
        self
    }

    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    #[must_use]
    pub fn default(mut self, value: impl Into<Value>) -> Self {
        self.default = Some(value.into());
        self
    }

    #[must_use]
    pub fn choices(mut self, choices: &[&'static str]) -> Self {
        self.choices = choices.to_vec();
        self
    }

    #[must_use]
    pub fn aliases(mut self, aliases: &[&'static str]) -> Self {
        self.aliases = aliases.to_vec();
        self
    }

    /// Environment variables that stand in, first one set wins.
    #[must_use]
    pub fn env(mut self, variables: &[&'static str]) -> Self {
        self.env = variables.to_vec();
        self
    }

    /// The value is a secret: masked in `invocation`, scrubbed from everything returned.
    #[must_use]
    pub fn no_log(mut self) -> Self {
        self.no_log = true;
        self
    }

    /// YAML may turn an unquoted value into a number (`52:54:00:12:34:56`, `0644`): a number is
    /// refused with the advice to quote it. `what` is what the option holds (`a MAC address`).
    #[must_use]
    pub fn quoted(mut self, what: &'static str) -> Self {
        self.quoted = Some(what);
        self
    }
}

/// A rule between options of one level, as AnsibleModule has them.
#[derive(Clone, Debug)]
pub enum Rule {
    MutuallyExclusive(Vec<&'static str>),
    RequiredTogether(Vec<&'static str>),
    RequiredOneOf(Vec<&'static str>),
    /// When `option` has `value`, all of `required` (or, with `any`, one of them) must be given.
    RequiredIf {
        option: &'static str,
        value: Value,
        required: Vec<&'static str>,
        any: bool,
    },
    /// When `option` is given, all of `required` must be.
    RequiredBy {
        option: &'static str,
        required: Vec<&'static str>,
    },
}

/// The options of one level, with their rules.
#[derive(Clone, Debug, Default)]
pub struct Table {
    pub(crate) options: Vec<Opt>,
    pub(crate) rules: Vec<Rule>,
}

impl Table {
    #[must_use]
    pub fn new(options: Vec<Opt>) -> Self {
        Self { options, rules: Vec::new() }
    }

    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds another table's options and rules (connection options shared by modules).
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.options.extend(other.options);
        self.rules.extend(other.rules);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.options.is_empty()
    }
}

/// A module's description: what `ansible-doc` shows and what the runner needs.
#[derive(Clone, Debug)]
pub struct Spec {
    pub name: &'static str,
    pub(crate) short_description: &'static str,
    pub(crate) description: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) requirements: Vec<String>,
    pub(crate) seealso: Vec<&'static str>,
    pub(crate) table: Table,
    pub(crate) examples: &'static str,
    pub(crate) returns: &'static str,
    pub(crate) timeout: u64,
    pub(crate) timeout_doc: &'static str,
    pub(crate) idempotent: bool,
    pub(crate) platform: &'static str,
}

impl Spec {
    #[must_use]
    pub fn new(name: &'static str, short_description: &'static str) -> Self {
        Self {
            name,
            short_description,
            description: Vec::new(),
            notes: Vec::new(),
            requirements: Vec::new(),
            seealso: Vec::new(),
            table: Table::default(),
            examples: "",
            returns: "",
            timeout: 60,
            timeout_doc: "Seconds that the whole run may take, waits and read-back included.",
            idempotent: true,
            platform: "linux",
        }
    }

    /// One paragraph of the description, a full sentence; call again for more.
    #[must_use]
    pub fn describe(mut self, paragraph: impl Into<String>) -> Self {
        self.description.push(paragraph.into());
        self
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    #[must_use]
    pub fn requirement(mut self, requirement: impl Into<String>) -> Self {
        self.requirements.push(requirement.into());
        self
    }

    /// Full names of related modules.
    #[must_use]
    pub fn seealso(mut self, modules: &[&'static str]) -> Self {
        self.seealso = modules.to_vec();
        self
    }

    #[must_use]
    pub fn options(mut self, table: Table) -> Self {
        self.table = table;
        self
    }

    /// YAML: a list of tasks that run as they stand.
    #[must_use]
    pub fn examples(mut self, yaml: &'static str) -> Self {
        self.examples = yaml;
        self
    }

    /// YAML in the form of Ansible's RETURN block, the module's own keys only; what the runner
    /// returns for every module is added.
    #[must_use]
    pub fn returns(mut self, yaml: &'static str) -> Self {
        self.returns = yaml;
        self
    }

    /// The default of the option `timeout`, in seconds.
    #[must_use]
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.timeout = seconds;
        self
    }

    /// A second run does not answer `changed: false` by nature (boot once); the description says what it answers.
    #[must_use]
    pub fn one_shot(mut self) -> Self {
        self.idempotent = false;
        self
    }

    /// The whole table, with the options that the runner itself brings.
    pub(crate) fn full_table(&self) -> Table {
        let timeout = Opt::int("timeout").default(self.timeout).doc(self.timeout_doc);
        self.table.clone().with(Table::new(vec![timeout]))
    }
}
