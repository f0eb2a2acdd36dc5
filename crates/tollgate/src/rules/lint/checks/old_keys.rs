//! The lint about keys that have a new name.

use crate::rules::lint::Findings;
use crate::rules::lint::context::Context;

pub(in crate::rules::lint) fn renamed_key(context: &Context<'_>, found: &mut Findings<'_>) {
    for old in context.old_keys {
        let key = old.key;
        let message = format!("`{}` is now `{}`; the old name works until {}", key.old, key.new, key.until);
        found.push(found.warning(old.span, message, format!("write `{}`", key.new)));
    }
}
