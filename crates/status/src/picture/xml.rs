//! An XML writer that escapes texts and attributes.

use std::fmt::Display;
use wording::printable;

/// An attribute's name and value.
pub(super) type Attribute<'a> = (&'static str, &'a dyn Display);

#[derive(Debug, Default)]
pub(super) struct Xml(String);

impl Xml {
    /// An element whose content `inside` writes.
    pub(super) fn element(
        &mut self,
        name: &str,
        attributes: &[Attribute<'_>],
        inside: impl FnOnce(&mut Xml),
    ) {
        self.start(name, attributes);
        self.0.push('>');
        inside(self);
        self.0.push_str("</");
        self.0.push_str(name);
        self.0.push('>');
    }

    pub(super) fn empty(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.start(name, attributes);
        self.0.push_str("/>");
    }

    /// An element with text in it.
    pub(super) fn text(&mut self, name: &str, attributes: &[Attribute<'_>], text: &str) {
        self.element(name, attributes, |xml| xml.0.push_str(&escaped(text)));
    }

    /// Adds XML as it is, such as the style sheet.
    pub(super) fn raw(&mut self, xml: &str) {
        self.0.push_str(xml);
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    fn start(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.0.push('<');
        self.0.push_str(name);
        for (name, value) in attributes {
            self.0.push_str(&format!(" {name}=\"{}\"", escaped(&value.to_string())));
        }
    }
}

/// The text for XML and HTML, between tags and in quoted attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML 1.0 does not allow these.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_attributes_cannot_end_their_element() {
        assert_eq!(
            escaped("<script>'x'&\"y\"\0\u{ffff}</script>"),
            "&lt;script&gt;&#39;x&#39;&amp;&quot;y&quot;\u{fffd}\u{fffd}&lt;/script&gt;"
        );
        let mut xml = Xml::default();
        xml.text("a", &[("b", &"\"><c d='")], "</a>");
        assert_eq!(xml.finish(), "<a b=\"&quot;&gt;&lt;c d=&#39;\">&lt;/a&gt;</a>");
    }
}
