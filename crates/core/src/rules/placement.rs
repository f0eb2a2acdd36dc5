//! How subjects are distributed over the hash slots of a cluster.

/// How the hash tags of a rule set's keys are chosen. By default each subject has a separate tag.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Placement {
    /// Attributes by which subjects share a hash tag. It applies to rules whose subjects always include all of them.
    pub partition: Vec<String>,
    /// Number of hash tags. Fewer tags let checks of different subjects share one call.
    pub slots: Option<u16>,
}
