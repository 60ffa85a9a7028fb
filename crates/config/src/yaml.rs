//! YAML as a tree whose parts know their lines, and serde's view of it.
//!
//! The tree stays small for any text: the text, its depth and the number of its values are bounded
//! while it is read, and there are no aliases, which would multiply it. Errors are about what the
//! user wrote: serde's words for them are replaced here.

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, Expected, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use wording::{nearest, unknown};

/// The largest text, in bytes: that of a ConfigMap.
pub const MAX_SIZE: usize = 1 << 20;
/// Levels of lists and maps, in flow style and in block style each. A configuration has six.
const MAX_DEPTH: usize = 32;
/// Values in the text, names of fields included. Five thousand namespaces have fewer.
const MAX_VALUES: usize = 50_000;

#[derive(Debug)]
pub(super) struct YamlNode {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) value: YamlValue,
}

#[derive(Debug)]
pub(super) enum YamlValue {
    /// Nothing, `~` or `null`.
    Null,
    Scalar(Box<str>),
    List(Vec<YamlNode>),
    /// In the order of the text. No key occurs twice.
    Map(Vec<(Key, YamlNode)>),
}

#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: Box<str>,
    /// Counted from 1.
    pub(super) line: usize,
}

/// What is wrong with a text, and where.
#[derive(Debug)]
pub(super) struct YamlMistake {
    /// Counted from 1; `None` until a part of the tree adds its own.
    pub(super) line: Option<usize>,
    /// The field, like `namespaces[0].allow`; empty for the whole text.
    path: String,
    why: String,
}

impl YamlMistake {
    fn new(line: usize, why: impl Into<String>) -> YamlMistake {
        YamlMistake { line: Some(line), path: String::new(), why: why.into() }
    }

    pub(super) fn unknown_field(field: &str, expected: &[&str]) -> YamlMistake {
        let near = nearest(field, expected);
        let all = if near.is_empty() {
            format!(", expected one of {}", expected.join(", "))
        } else {
            near
        };
        de::Error::custom(format!("unknown field {field:?}{all}"))
    }

    /// The innermost line counts.
    pub(super) fn on(mut self, line: usize) -> YamlMistake {
        self.line.get_or_insert(line);
        self
    }

    /// Within a field, or an item of a list like `[0]`.
    pub(super) fn within(mut self, part: &str) -> YamlMistake {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{part}{dot}{}", self.path);
        self
    }
}

impl Display for YamlMistake {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.why)
        } else {
            write!(f, "{}: {}", self.path, self.why)
        }
    }
}

impl std::error::Error for YamlMistake {}

impl de::Error for YamlMistake {
    fn custom<T: Display>(why: T) -> YamlMistake {
        YamlMistake { line: None, path: String::new(), why: why.to_string() }
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> YamlMistake {
        YamlMistake::unknown_field(field, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> YamlMistake {
        de::Error::custom(unknown(variant, expected))
    }
}

impl YamlNode {
    /// The document of a text; [`YamlValue::Null`] if it has none.
    pub(super) fn parse(text: &str) -> Result<YamlNode, YamlMistake> {
        if text.len() > MAX_SIZE {
            return Err(YamlMistake::new(1, format!("larger than {MAX_SIZE} bytes")));
        }
        check_characters(text)?;
        let options = granit_parser::options! {
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
            emit_unresolved_aliases: true,
        };
        let parser = Parser::new_from_str_with_options(text, options);
        let mut reader = Reader { text, parser, values: 0 };
        let mut root = None;
        loop {
            match reader.next()? {
                (Event::StreamStart | Event::DocumentStart(..) | Event::DocumentEnd, _) => {}
                (Event::StreamEnd, _) => {
                    return Ok(root.unwrap_or(YamlNode { line: 1, value: YamlValue::Null }));
                }
                (_, at) if root.is_some() => {
                    let why =
                        "a second document begins here: expected one, without --- between parts";
                    return Err(YamlMistake::new(at.start.line(), why));
                }
                (event, at) => root = Some(reader.node(event, at)?),
            }
        }
    }

    /// A field of this map.
    pub(super) fn field(&self, name: &str) -> Option<(&Key, &YamlNode)> {
        let field = self.fields().iter().find(|(key, _)| *key.name == *name);
        field.map(|(key, value)| (key, value))
    }

    /// The first field with this name: of this map, otherwise of what is in it.
    pub(super) fn find(&self, name: &str) -> Option<(&Key, &YamlNode)> {
        self.field(name).or_else(|| {
            let values = self.fields().iter().map(|(_, value)| value).chain(self.items());
            values.into_iter().find_map(|value| value.find(name))
        })
    }

    /// Empty if this is no map.
    pub(super) fn fields(&self) -> &[(Key, YamlNode)] {
        if let YamlValue::Map(fields) = &self.value { fields } else { &[] }
    }

    /// Empty if this is no list.
    pub(super) fn items(&self) -> &[YamlNode] {
        if let YamlValue::List(items) = &self.value { items } else { &[] }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        if let YamlValue::Scalar(text) = &self.value { Some(text) } else { None }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, YamlValue::Null)
    }

    /// The fields of a map that can have these.
    pub(super) fn expect_fields(&self, names: &[&str]) -> Result<&[(Key, YamlNode)], YamlMistake> {
        const SHOWN: usize = 4;
        if let YamlValue::Map(fields) = &self.value {
            return Ok(fields);
        }
        let some = names.iter().take(SHOWN).map(|field| format!("{field}: ..."));
        let more = if names.len() > SHOWN { ", ..." } else { "" };
        let some = some.collect::<Vec<_>>().join(", ");
        Err(self.wrong(&format!("fields like {{{some}{more}}}")))
    }

    /// Nothing is an empty map, as in Kubernetes.
    pub(super) fn expect_map(
        &self,
        expected: &dyn Display,
    ) -> Result<&[(Key, YamlNode)], YamlMistake> {
        match &self.value {
            YamlValue::Map(fields) => Ok(fields),
            YamlValue::Null => Ok(&[]),
            YamlValue::Scalar(_) | YamlValue::List(_) => Err(self.wrong(expected)),
        }
    }

    /// Nothing is an empty list, as in Kubernetes.
    pub(super) fn expect_items(&self) -> Result<&[YamlNode], YamlMistake> {
        match &self.value {
            YamlValue::List(items) => Ok(items),
            YamlValue::Null => Ok(&[]),
            YamlValue::Scalar(text) => Err(self.wrong(&format!("a list like [{text:?}]"))),
            YamlValue::Map(_) => Err(self.wrong(&"a list of entries that begin with \"- \"")),
        }
    }

    fn wrong(&self, expected: &dyn Display) -> YamlMistake {
        let found = match &self.value {
            YamlValue::Null => "nothing".to_owned(),
            YamlValue::Scalar(text) => format!("{text:?}"),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a map".to_owned(),
        };
        de::Error::custom(format!("expected {expected}, found {found}"))
    }
}
struct Reader<'t> {
    text: &'t str,
    parser: Parser<'t, StrInput<'t>>,
    /// The number of values so far.
    values: usize,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), YamlMistake> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.explain(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The value that begins with this event.
    fn node(&mut self, event: Event<'t>, at: Span) -> Result<YamlNode, YamlMistake> {
        let line = at.start.line();
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(YamlMistake::new(line, format!("more than {MAX_VALUES} values")));
        }
        let value = match event {
            Event::Scalar(text, style, 0, tag) => scalar(&text, style, check_tag(tag, line)?),
            Event::SequenceStart(_, 0, tag) => {
                check_tag(tag, line)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break YamlValue::List(items),
                        (event, at) => {
                            let item = self.node(event, at);
                            let part = format!("[{}]", items.len());
                            items.push(item.map_err(|mistake| mistake.within(&part))?);
                        }
                    }
                }
            }
            Event::MappingStart(_, 0, tag) => {
                check_tag(tag, line)?;
                self.map()?
            }
            // With an anchor, or an alias.
            _ => return Err(YamlMistake::new(line, NO_ALIASES)),
        };
        Ok(YamlNode { line, value })
    }

    fn map(&mut self) -> Result<YamlValue, YamlMistake> {
        let mut fields = Vec::new();
        let mut lines: BTreeMap<Box<str>, usize> = BTreeMap::new();
        loop {
            let (name, line) = match self.next()? {
                (Event::MappingEnd, _) => return Ok(YamlValue::Map(fields)),
                (event, at) => {
                    let key = self.node(event, at)?;
                    match key.value {
                        YamlValue::Null => ("".into(), key.line),
                        YamlValue::Scalar(name) => (name, key.line),
                        YamlValue::List(_) | YamlValue::Map(_) => {
                            let why = "a list or a map in place of a field's name";
                            return Err(YamlMistake::new(key.line, why));
                        }
                    }
                }
            };
            if let Some(first) = lines.insert(name.clone(), line) {
                let why = format!("set twice, first on line {first}");
                return Err(YamlMistake::new(line, why).within(&name));
            }
            let (event, at) = self.next()?;
            let value = self.node(event, at).map_err(|mistake| mistake.within(&name))?;
            fields.push((Key { name, line }, value));
        }
    }

    /// The parser's error, or what a user has done to get it.
    fn explain(&self, error: &ScanError) -> YamlMistake {
        // The parser may name the line on which a value begins, and the mistake is on the next one.
        let here = self.text.lines().zip(1..).skip(error.marker().line().saturating_sub(1));
        let indented_by_tab = |(text, _): &(&str, usize)| {
            text.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t')
        };
        if let Some((_, line)) = here.take(2).find(indented_by_tab) {
            return YamlMistake::new(line, "a tab in the indentation: YAML allows spaces only");
        }
        let line = error.marker().line();
        let why = match error.kind() {
            ErrorKind::RecursionLimitExceeded => {
                format!("more than {MAX_DEPTH} lists and maps in each other")
            }
            ErrorKind::MissingAnchorOrAliasName => NO_ALIASES.to_owned(),
            ErrorKind::ExpectedDocumentStart => {
                "not valid YAML: this line does not continue the previous one: check its indentation"
                    .to_owned()
            }
            _ => format!("not valid YAML: {}", error.info()),
        };
        YamlMistake::new(line, why)
    }
}

/// An unquoted pattern like `*-prod` reads as an alias.
const NO_ALIASES: &str = "YAML's anchors and aliases are not supported: write the value itself, and quote a \
                          text that begins with & or *, like \"*\"";

/// The parser takes some control characters for the end of the text.
fn check_characters(text: &str) -> Result<(), YamlMistake> {
    let control = |c: &char| c.is_control() && !['\t', '\n', '\r', '\u{85}'].contains(c);
    let Some((before, c)) = text.char_indices().find(|(_, c)| control(c)) else { return Ok(()) };
    let line = text[..before].lines().count().max(1);
    let why = format!(
        "control character U+{:04X}: remove it, or write it as \"\\u{:04X}\" in quotes",
        u32::from(c),
        u32::from(c)
    );
    Err(YamlMistake::new(line, why))
}

/// Whether the value has a tag of YAML's own like `!!str`.
fn check_tag(tag: Option<Cow<'_, Tag>>, line: usize) -> Result<bool, YamlMistake> {
    match tag {
        Some(tag) if !tag.is_yaml_core_schema() => Err(YamlMistake::new(
            line,
            format!("the tag {tag} is not supported: write the value itself"),
        )),
        tag => Ok(tag.is_some()),
    }
}

/// A scalar as text: what it means depends on the field.
fn scalar(text: &str, style: ScalarStyle, tagged: bool) -> YamlValue {
    if style != ScalarStyle::Plain || tagged {
        return YamlValue::Scalar(text.into());
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => YamlValue::Null,
        "True" | "TRUE" => YamlValue::Scalar("true".into()),
        "False" | "FALSE" => YamlValue::Scalar("false".into()),
        _ => YamlValue::Scalar(text.into()),
    }
}

impl<'de> Deserializer<'de> for &'de YamlNode {
    type Error = YamlMistake;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlMistake> {
        match &self.value {
            YamlValue::Null => visitor.visit_unit(),
            YamlValue::Scalar(text) => visitor.visit_borrowed_str(text),
            YamlValue::List(items) => visitor.visit_seq(ItemAccess { items: items.iter(), at: 0 }),
            YamlValue::Map(fields) => {
                visitor.visit_map(FieldAccess { fields: fields.iter(), value: None })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlMistake> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlMistake> {
        match &self.value {
            YamlValue::Scalar(text) => visitor.visit_borrowed_str(text),
            _ => Err(self.wrong(&"one value")),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlMistake> {
        visitor.visit_seq(ItemAccess { items: self.expect_items()?.iter(), at: 0 })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, YamlMistake> {
        let fields = self.expect_map(&(&visitor as &dyn Expected))?.iter();
        visitor.visit_map(FieldAccess { fields, value: None })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, YamlMistake> {
        let fields = self.expect_fields(fields)?.iter();
        visitor.visit_map(FieldAccess { fields, value: None })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, YamlMistake> {
        match &self.value {
            YamlValue::Scalar(text) => visitor.visit_enum(StrDeserializer::new(text)),
            _ => Err(self.wrong(&"one value")),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf unit
        unit_struct newtype_struct tuple tuple_struct identifier ignored_any
    }
}

struct ItemAccess<'de> {
    items: std::slice::Iter<'de, YamlNode>,
    at: usize,
}

impl<'de> de::SeqAccess<'de> for ItemAccess<'de> {
    type Error = YamlMistake;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, YamlMistake> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let at = self.at;
        self.at += 1;
        let value = seed.deserialize(item);
        value.map(Some).map_err(|mistake| mistake.on(item.line).within(&format!("[{at}]")))
    }
}

struct FieldAccess<'de> {
    fields: std::slice::Iter<'de, (Key, YamlNode)>,
    /// The field whose name was read last.
    value: Option<&'de (Key, YamlNode)>,
}

impl<'de> de::MapAccess<'de> for FieldAccess<'de> {
    type Error = YamlMistake;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, YamlMistake> {
        self.value = self.fields.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let name: StrDeserializer<'_, YamlMistake> = (*key.name).into_deserializer();
        seed.deserialize(name).map(Some).map_err(|mistake| mistake.on(key.line))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(
        &mut self,
        seed: V,
    ) -> Result<V::Value, YamlMistake> {
        let Some((key, value)) = self.value else {
            return Err(de::Error::custom("a value without a field"));
        };
        seed.deserialize(value).map_err(|mistake| mistake.on(key.line).within(&key.name))
    }
}
