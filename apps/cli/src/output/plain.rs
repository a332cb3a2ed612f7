//! Text from other machines, for a terminal.

use std::borrow::Cow;

/// Text from other machines, made safe for a terminal: names and messages chosen by workers, models and clients could
/// move the cursor, colour the text, or turn the reading direction.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let shown = text.chars().map(|c| match is_control(c) {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    });
    Cow::Owned(shown.collect())
}

/// Control characters, and characters that change the reading direction.
pub(super) fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}
