//! What a run intends to do, and the proof that it took.

use serde_json::Value;

/// One field that is to change. `Value::Null` stands for "absent".
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The field's path in the system's own words (`net0.macaddr`, `reservation.ip-address`).
    pub field: String,
    pub before: Value,
    pub after: Value,
}

impl Change {
    #[must_use]
    pub fn new(field: impl Into<String>, before: impl Into<Value>, after: impl Into<Value>) -> Self {
        Self { field: field.into(), before: before.into(), after: after.into() }
    }

    /// A change whose values must not be shown.
    #[must_use]
    pub fn secret(field: impl Into<String>) -> Self {
        Self::new(field, "(hidden)", "(hidden, set by this task)")
    }
}

/// One write (a request, a command) and the fields it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Step<A> {
    pub action: A,
    pub changes: Vec<Change>,
}

/// A step, or a gate: everything before a gate is read back before anything behind it is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Item<A> {
    Step(Step<A>),
    Gate,
}

/// The ordered list of writes. An empty plan is `changed: false`.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<A> {
    pub items: Vec<Item<A>>,
    /// What the user should know although nothing is wrong.
    pub warnings: Vec<String>,
}

impl<A> Default for Plan<A> {
    fn default() -> Self {
        Self { items: Vec::new(), warnings: Vec::new() }
    }
}

impl<A> Plan<A> {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a write. A step always names at least one field that it changes.
    pub fn step(&mut self, action: A, changes: Vec<Change>) {
        debug_assert!(!changes.is_empty(), "a step that changes nothing has no place in a plan");
        self.items.push(Item::Step(Step { action, changes }));
    }

    /// Everything so far must be proved before what follows is sent.
    pub fn gate(&mut self) {
        self.items.push(Item::Gate);
    }

    pub fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// True when there is nothing to write (gates alone are nothing).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps().next().is_none()
    }

    pub fn steps(&self) -> impl Iterator<Item = &Step<A>> {
        self.items.iter().filter_map(|item| match item {
            Item::Step(step) => Some(step),
            Item::Gate => None,
        })
    }

    /// Every change in order.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps().flat_map(|step| &step.changes)
    }

    /// The steps between gates; empty stages are left out.
    pub(crate) fn stages(&self) -> Vec<Vec<&Step<A>>> {
        self.items
            .split(|item| matches!(item, Item::Gate))
            .map(|stage| {
                stage
                    .iter()
                    .filter_map(|item| match item {
                        Item::Step(step) => Some(step),
                        Item::Gate => None,
                    })
                    .collect::<Vec<_>>()
            })
            .filter(|stage| !stage.is_empty())
            .collect()
    }
}

/// What reading back says about one change.
#[derive(Clone, Debug, PartialEq)]
pub enum Proof {
    /// The system now says what was asked.
    Held,
    /// Accepted and stored, and not in effect yet: why, and what puts it in effect.
    Pending(String),
    /// The system does not show it (a masked password, a consumed override): why.
    Unreadable(String),
    /// The system says something else: what it says.
    Mismatch { found: Value },
}

impl Proof {
    /// `Held` when both are equal, else `Mismatch`.
    #[must_use]
    pub fn equal(asked: &Value, found: impl Into<Value>) -> Self {
        let found = found.into();
        if *asked == found { Self::Held } else { Self::Mismatch { found } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_split_a_plan_into_stages() {
        let mut plan = Plan::new();
        plan.gate();
        plan.step("a", vec![Change::new("x", 1, 2)]);
        plan.step("b", vec![Change::new("y", 1, 2)]);
        plan.gate();
        plan.gate();
        plan.step("c", vec![Change::new("z", 1, 2)]);
        let stages: Vec<Vec<&str>> =
            plan.stages().iter().map(|stage| stage.iter().map(|step| step.action).collect()).collect();
        assert_eq!(stages, [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn gates_alone_are_an_empty_plan() {
        let mut plan: Plan<()> = Plan::new();
        plan.gate();
        assert!(plan.is_empty());
    }
}
