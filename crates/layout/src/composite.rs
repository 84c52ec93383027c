//! Layouts over tiers: `mirror=2 on ram; 4+2 on disk` keeps a range mirrored on one tier and coded on another.

use std::fmt;
use std::str::FromStr;

use cenote_model::{Error, ErrorKind, Result};

use crate::Layout;

/// A layout for the bytes on one tier.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layer {
    /// Name of the tier; none means each tier that no other layer names.
    pub tier: Option<String>,
    /// The layout there.
    pub layout: Layout,
}

/// One layout a tier (composite layouts of SAGE). Each tier occurs once.
///
/// ```
/// # use cenote_layout::Composite;
/// let composite: Composite = "mirror=2 on ram; 4+2 on disk".parse().unwrap();
/// assert_eq!(composite.on("disk").unwrap().to_string(), "4+2");
/// assert!(composite.on("tape").is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    layers: Vec<Layer>,
}

impl Composite {
    /// The layers, in order.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }
    /// The layout of bytes on this tier; none if no layer is for it.
    pub fn on(&self, tier: &str) -> Option<&Layout> {
        let named = self.layers.iter().find(|layer| layer.tier.as_deref() == Some(tier));
        let layer = named.or_else(|| self.layers.iter().find(|layer| layer.tier.is_none()));
        layer.map(|layer| &layer.layout)
    }
    /// How many losses the bytes survive where they are kept worst, and the layout there.
    ///
    /// # Panics
    /// Never: there is at least one layer.
    pub fn weakest(&self) -> &Layer {
        self.layers.iter().min_by_key(|layer| layer.layout.losses_max()).expect("at least one layer")
    }
}

impl From<Layout> for Composite {
    fn from(layout: Layout) -> Self {
        Self { layers: vec![Layer { tier: None, layout }] }
    }
}

impl fmt::Display for Composite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, layer) in self.layers.iter().enumerate() {
            write!(f, "{}{}", if number > 0 { "; " } else { "" }, layer.layout)?;
            if let Some(tier) = &layer.tier {
                write!(f, " on {tier}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Composite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut layers: Vec<Layer> = Vec::new();
        for word in text.split(';') {
            let (layout, tier) = match word.rsplit_once(" on ") {
                Some((layout, tier)) => (layout, Some(tier.trim().to_owned())),
                None => (word, None),
            };
            let layer = Layer { tier, layout: layout.trim().parse()? };
            if let Some(cause) = clash(&layers, &layer) {
                let error = Error::new(ErrorKind::InvalidInput, format!("layout `{text}`")).because(cause);
                return Err(error.try_next("give each tier one layout, for example `mirror=2 on ram; 4+2 on disk`"));
            }
            layers.push(layer);
        }
        Ok(Self { layers })
    }
}

fn clash(layers: &[Layer], new: &Layer) -> Option<String> {
    let twice = layers.iter().any(|layer| layer.tier == new.tier);
    match &new.tier {
        Some(tier) if tier.is_empty() || tier.contains(char::is_whitespace) => {
            Some(format!("`{tier}` is not the name of a tier"))
        }
        Some(tier) if twice => Some(format!("tier `{tier}` has two layouts")),
        None if twice => Some("two layouts are for every other tier".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn composites_are_printed_as_they_are_written() {
        for text in ["mirror=2", "mirror=2 on ram; 4+2,unit=256KiB on disk", "mirror=3 on ram; plain"] {
            let composite: Composite = text.parse().unwrap();
            assert_eq!(composite.to_string(), text);
        }
        let composite: Composite = "mirror=3 on ram;  4+2".parse().unwrap();
        assert_eq!(composite.on("ram").unwrap().to_string(), "mirror=3");
        assert_eq!(composite.on("any").unwrap().to_string(), "4+2");
        assert_eq!(composite.weakest().layout.losses_max(), 2);
    }

    #[test]
    fn a_tier_with_two_layouts_is_refused() {
        for (text, cause) in [
            ("mirror=2 on ram; plain on ram", "tier `ram` has two layouts"),
            ("mirror=2; plain", "two layouts are for every other tier"),
            ("mirror=2 on my disk", "`my disk` is not the name of a tier"),
            ("mirror=2 on ram; ", "`` is no scheme"),
        ] {
            let error = text.parse::<Composite>().unwrap_err();
            assert!(error.cause().contains(cause), "{error}");
        }
    }
}
