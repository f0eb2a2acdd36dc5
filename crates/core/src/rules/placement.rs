//! Where subjects lie in a cluster.

/// What decides the slots of a rule set's keys. Without anything each subject has its own.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Placement {
    /// Attributes by which subjects share a slot. A rule whose subjects do not always have them keeps to its own.
    pub partition: Vec<String>,
    /// Into so many slots they are divided, so that checks of different subjects can travel together.
    pub slots: Option<u16>,
}
