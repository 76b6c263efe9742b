//! Text into HTML, JSON into a script element, and the hashes of the page's security policy.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// Text for an element's content or a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // HTML has no way to write the other control characters.
            c if c.is_control() && !matches!(c, '\n' | '\t') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON for the inside of `<script type="application/json">`. `<` stands only in strings, where `\u003c` means the same: neither
/// `</script>` nor `<!--` can end or open anything.
pub fn script_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_string()).replace('<', "\\u003c")
}

/// The source expression that allows exactly this inline text (Content Security Policy level 3, section 2.3.1).
pub fn csp_hash(text: &str) -> String {
    format!("sha256-{}", base64(&Sha256::digest(text.as_bytes())))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0u32, |group, byte| group << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit =
                ALPHABET.get((group >> (18 - 6 * place) & 63) as usize).map_or('=', |byte| char::from(*byte));
            text.push(if place <= chunk.len() { digit } else { '=' });
        }
    }
    text
}

/// A row of a table: cells that are already HTML.
pub fn row(cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|cell| {
            if cell.starts_with("<td") || cell.starts_with("<th") {
                cell.clone()
            } else {
                format!("<td>{cell}</td>")
            }
        })
        .collect();
    format!("<tr>{cells}</tr>\n")
}

/// A cell with a number: what is shown, and what it is sorted by.
pub fn number(shown: &str, value: f64) -> String {
    format!("<td class=\"number\" data-sort=\"{value}\">{}</td>", escape(shown))
}

/// A table that the script makes sortable, in a box that scrolls by itself when it is too wide.
pub fn table(label: &str, headings: &[&str], rows: &str) -> String {
    let headings: String =
        headings.iter().map(|heading| format!("<th scope=\"col\">{}</th>", escape(heading))).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\"><table class=\"sortable\"><thead><tr>{headings}</tr></thead><tbody>\n{rows}</tbody></table></div>\n",
        escape(label)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("<script>\"a\" & 'b'</script>\u{0}"),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}"
        );
    }

    #[test]
    fn json_cannot_leave_its_element() {
        let hostile = "</script><!--<script>";
        let json = script_json(&hostile);
        assert!(!json.contains('<'));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), hostile);
    }

    #[test]
    fn base64_as_in_the_rfc() {
        // RFC 4648, section 10.
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text.as_bytes()), encoded);
        }
    }
}
