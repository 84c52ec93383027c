//! Queries that select objects and ranges, in one line: `size>=1GiB and age>7d and tier=nvme`.
//!
//! Conditions are joined by `and`, `or`, `not` and parentheses. Names are compared with patterns (`*`, `?`).

use crate::schema::{Glob, duration_ms};

/// Upper bound of nesting.
const DEPTH_MAX: u32 = 64;
/// Longest query, in bytes.
pub const QUERY_BYTES_MAX: usize = 16 << 10;

/// Used within this time: hot.
const HOT_MS: u64 = 60_000;
/// Used within this time: warm.
const WARM_MS: u64 = 3_600_000;

/// A fault in a query, and its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueryFault {
    /// Column in characters, from 1.
    pub column: u32,
    /// The fault.
    pub what: String,
}

impl std::fmt::Display for QueryFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "column {}: {}", self.column, self.what)
    }
}

/// A range that a query is evaluated on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Candidacy<'a> {
    /// The container's label.
    pub label: &'a str,
    /// The object's id, in hexadecimal digits.
    pub object: &'a str,
    /// Bytes of the object.
    pub bytes: u64,
    /// Milliseconds since the object was last written.
    pub age_ms: u64,
    /// Milliseconds since it was last read or written.
    pub idle_ms: u64,
    /// The tier on which the range is read.
    pub tier: &'a str,
    /// The tier that has its copy.
    pub copy: Option<&'a str>,
    /// True if it is pinned.
    pub is_pinned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Less,
    AtMost,
    Same,
    Other,
    AtLeast,
    More,
}

impl Order {
    fn holds(self, value: u64, bound: u64) -> bool {
        match self {
            Self::Less => value < bound,
            Self::AtMost => value <= bound,
            Self::Same => value == bound,
            Self::Other => value != bound,
            Self::AtLeast => value >= bound,
            Self::More => value > bound,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Name {
    Label,
    Object,
    Tier,
    Copy,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Number {
    Size,
    Age,
    Idle,
}

#[derive(Clone, PartialEq, Debug)]
enum Term {
    Any(Vec<Term>),
    All(Vec<Term>),
    Not(Box<Term>),
    Named(Name, Glob),
    Counted(Number, Order, u64),
    /// Idle at least the first and less than the second time.
    Temperature(u64, u64),
    Pinned(bool),
}

/// A parsed query.
#[derive(Clone, PartialEq, Debug)]
pub struct Query(Term);

impl Query {
    /// Parses a query.
    pub fn parse(text: &str) -> Result<Self, QueryFault> {
        if text.len() > QUERY_BYTES_MAX {
            return Err(QueryFault { column: 1, what: format!("longer than {QUERY_BYTES_MAX} bytes") });
        }
        let mut parser = Parser { text, at: 0 };
        let term = parser.any(0)?;
        match parser.word() {
            None => Ok(Self(term)),
            Some((at, word)) => Err(parser.fault(at, format!("`{word}` where `and`, `or` or the end should be"))),
        }
    }
    /// Returns true if the query selects this range.
    #[must_use]
    pub fn means(&self, it: &Candidacy<'_>) -> bool {
        means(&self.0, it)
    }
}

fn means(term: &Term, it: &Candidacy<'_>) -> bool {
    match term {
        Term::Any(terms) => terms.iter().any(|term| means(term, it)),
        Term::All(terms) => terms.iter().all(|term| means(term, it)),
        Term::Not(term) => !means(term, it),
        Term::Named(name, glob) => match name {
            Name::Label => glob.matches(it.label),
            // Ids may be written without leading zeros, as everywhere.
            Name::Object => glob.matches(it.object) || glob.matches(it.object.trim_start_matches('0')),
            Name::Tier => glob.matches(it.tier),
            Name::Copy => glob.matches(it.copy.unwrap_or("")),
        },
        Term::Counted(number, order, bound) => {
            let value = match number {
                Number::Size => it.bytes,
                Number::Age => it.age_ms,
                Number::Idle => it.idle_ms,
            };
            order.holds(value, *bound)
        }
        Term::Temperature(from, until) => (*from..*until).contains(&it.idle_ms),
        Term::Pinned(yes) => it.is_pinned == *yes,
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

const SIGNS: [(&str, Order); 6] = [
    ("<=", Order::AtMost),
    (">=", Order::AtLeast),
    ("!=", Order::Other),
    ("<", Order::Less),
    (">", Order::More),
    ("=", Order::Same),
];

impl<'a> Parser<'a> {
    fn fault(&self, at: usize, what: String) -> QueryFault {
        let column = self.text.get(..at).unwrap_or(self.text).chars().count() as u32 + 1;
        QueryFault { column, what }
    }
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        trimmed
    }
    /// The next token and its place, without consuming it: a parenthesis, an operator, or the text before the next of
    /// these or a space.
    fn peek(&mut self) -> Option<(usize, &'a str)> {
        let rest = self.rest();
        let first = rest.chars().next()?;
        let len = if "()".contains(first) {
            1
        } else if let Some((sign, _)) = SIGNS.iter().find(|(sign, _)| rest.starts_with(sign)) {
            sign.len()
        } else {
            rest.find(|c: char| c.is_whitespace() || "()<>=!\"".contains(c)).unwrap_or(rest.len()).max(first.len_utf8())
        };
        Some((self.at, &rest[..len]))
    }
    fn word(&mut self) -> Option<(usize, &'a str)> {
        let (at, word) = self.peek()?;
        self.at += word.len();
        Some((at, word))
    }
    fn takes(&mut self, keyword: &str) -> bool {
        let is_next = self.peek().is_some_and(|(_, word)| word == keyword);
        if is_next {
            self.at += keyword.len();
        }
        is_next
    }
    fn any(&mut self, depth: u32) -> Result<Term, QueryFault> {
        let mut terms = vec![self.all(depth)?];
        while self.takes("or") {
            terms.push(self.all(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::Any(terms) })
    }
    fn all(&mut self, depth: u32) -> Result<Term, QueryFault> {
        let mut terms = vec![self.one(depth)?];
        while self.takes("and") {
            terms.push(self.one(depth)?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Term::All(terms) })
    }
    fn one(&mut self, depth: u32) -> Result<Term, QueryFault> {
        if depth >= DEPTH_MAX {
            return Err(self.fault(self.at, "nested too deeply".to_owned()));
        }
        if self.takes("not") {
            return Ok(Term::Not(Box::new(self.one(depth + 1)?)));
        }
        if self.takes("(") {
            let term = self.any(depth + 1)?;
            return match self.word() {
                Some((_, ")")) => Ok(term),
                _ => Err(self.fault(self.at, "a `(` without its `)`".to_owned())),
            };
        }
        self.condition()
    }
    fn condition(&mut self) -> Result<Term, QueryFault> {
        const FIELDS: &str = "label, object, size, age, idle, tier, copy, temperature, pinned";
        let Some((at, field)) = self.word() else {
            return Err(self.fault(self.at, format!("a condition is missing: one of {FIELDS}, a sign, a value")));
        };
        let kind = match field {
            "label" | "object" | "size" | "age" | "idle" | "tier" | "copy" | "temperature" | "pinned" => field,
            _ => return Err(self.fault(at, format!("`{field}` is not one of {FIELDS}"))),
        };
        let sign = self.word();
        let Some((sign_at, order)) =
            sign.and_then(|(at, sign)| Some((at, SIGNS.iter().find(|(known, _)| *known == sign)?.1)))
        else {
            let at = sign.map_or(self.text.len(), |(at, _)| at);
            return Err(self.fault(at, format!("`{field}` needs a sign: =, !=, <, <=, > or >=")));
        };
        let (value_at, value) = self.value(field)?;
        let counted = |number, bound: Result<u64, String>| match bound {
            Ok(bound) => Ok(Term::Counted(number, order, bound)),
            Err(what) => Err((value_at, what)),
        };
        let is_equality = matches!(order, Order::Same | Order::Other);
        let term = match kind {
            "size" => counted(Number::Size, cenote_model::size::parse(value)),
            "age" => counted(Number::Age, duration_ms(value)),
            "idle" => counted(Number::Idle, duration_ms(value)),
            _ if !is_equality => Err((sign_at, format!("`{field}` is compared by = or !="))),
            "label" => Ok(Term::Named(Name::Label, Glob::new(value))),
            "object" => Ok(Term::Named(Name::Object, Glob::new(value))),
            "tier" => Ok(Term::Named(Name::Tier, Glob::new(value))),
            "copy" => Ok(Term::Named(Name::Copy, Glob::new(value))),
            "temperature" => match value {
                "hot" => Ok(Term::Temperature(0, HOT_MS)),
                "warm" => Ok(Term::Temperature(HOT_MS, WARM_MS)),
                "cold" => Ok(Term::Temperature(WARM_MS, u64::MAX)),
                _ => Err((value_at, format!("temperature `{value}` is not one of hot, warm, cold"))),
            },
            _ => match value {
                "yes" => Ok(Term::Pinned(true)),
                "no" => Ok(Term::Pinned(false)),
                _ => Err((value_at, format!("pinned is `yes` or `no`, not `{value}`"))),
            },
        };
        let term = term.map_err(|(at, what)| self.fault(at, what))?;
        let is_number = matches!(term, Term::Counted(..));
        Ok(if order == Order::Other && !is_number { Term::Not(Box::new(term)) } else { term })
    }
    fn value(&mut self, field: &str) -> Result<(usize, &'a str), QueryFault> {
        let rest = self.rest();
        if let Some(quoted) = rest.strip_prefix('"') {
            let at = self.at;
            let Some(len) = quoted.find('"') else {
                return Err(self.fault(at, "a `\"` without its end".to_owned()));
            };
            self.at += len + 2;
            return Ok((at, &quoted[..len]));
        }
        match self.word() {
            Some((at, word)) if !word.starts_with(|c: char| "()<>=!".contains(c)) => Ok((at, word)),
            found => {
                let at = found.map_or(self.text.len(), |(at, _)| at);
                Err(self.fault(at, format!("`{field}` needs a value")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IT: Candidacy<'static> = Candidacy {
        label: "run-7",
        object: "0000002a",
        bytes: 2 << 30,
        age_ms: 8 * 86_400_000,
        idle_ms: 5_000,
        tier: "nvme",
        copy: Some("tape"),
        is_pinned: false,
    };

    #[test]
    fn conditions_hold_or_not() {
        for (text, yes) in [
            ("size>=1GiB and age>7d and tier=nvme", true),
            ("size >= 1GiB and age > 9d", false),
            ("age>9d or label=run-*", true),
            ("not label=run-* or tier=ram", false),
            ("not (label=x or tier=ram)", true),
            ("label!=run-*", false),
            ("size!=3", true),
            ("label=\"run-7\" and object=2?", true),
            ("object=0000002a and object=2a", true),
            ("copy=tape", true),
            ("copy=\"\"", false),
            ("temperature=hot", true),
            ("temperature!=hot", false),
            ("temperature=cold", false),
            ("pinned=no and idle<=5s", true),
            ("label=a and label=b or tier=nvme", true),
            ("label=a and (label=b or tier=nvme)", false),
        ] {
            assert_eq!(Query::parse(text).unwrap().means(&IT), yes, "{text}");
        }
    }

    #[test]
    fn faults_have_their_column() {
        for (text, column, word) in [
            ("", 1, "condition is missing"),
            ("size", 5, "needs a sign"),
            ("size>", 6, "needs a value"),
            ("size>lots", 6, "lots"),
            ("sise>1", 1, "sise"),
            ("age>7 moons", 5, "unit"),
            ("tier<nvme", 5, "compared by"),
            ("tier=a tier=b", 8, "`and`"),
            ("(tier=a", 8, "without its `)`"),
            ("tier=\"a", 6, "without its end"),
            ("label=ü and x=1", 13, "`x`"),
            ("temperature=tepid", 13, "tepid"),
            ("tier=a and", 11, "missing"),
            ("pinned=maybe", 8, "maybe"),
            ("size>=>1", 7, "needs a value"),
        ] {
            let fault = Query::parse(text).expect_err(text);
            assert!(fault.what.contains(word), "{text}: {fault}");
            assert_eq!(fault.column, column, "{text}: {fault}");
        }
        assert!(Query::parse(&"(".repeat(5000)).unwrap_err().what.contains("deeply"));
        assert!(Query::parse(&"not ".repeat(4000)).unwrap_err().what.contains("deeply"));
    }
}
