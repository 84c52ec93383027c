//! Names on the command line: `CONTAINER`, `CONTAINER/OBJECT`, `CONTAINER/INDEX`, keys.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use cenote::{Container, Error, ErrorKind, Index, IndexId, Object, ObjectId, Result, Store};

/// Checks a container's label: text, since labels are UTF-8.
pub fn label(name: &OsStr) -> Result<&str> {
    let bad = |cause: &str| {
        Error::new(ErrorKind::InvalidInput, format!("container label `{}`", crate::out::escaped(name.as_bytes())))
            .because(cause)
            .try_next("give a label in UTF-8")
    };
    let text = name.to_str().ok_or_else(|| bad("it is not UTF-8"))?;
    if text.is_empty() { Err(bad("it is empty")) } else { Ok(text) }
}

/// Splits `CONTAINER/ID` at the last slash (labels may have slashes, ids may not).
fn split<'a, Id: FromStr<Err = Error>>(name: &'a OsStr, what: &str) -> Result<(&'a str, Id)> {
    let text = label(name)?;
    let Some((container, id)) = text.rsplit_once('/').filter(|(container, id)| !container.is_empty() && !id.is_empty())
    else {
        return Err(Error::new(ErrorKind::InvalidInput, format!("name `{text}`"))
            .because(format!("an {what} is named CONTAINER/ID, with a hexadecimal id"))
            .try_next("`cenote ls CONTAINER` lists the ids"));
    };
    Ok((container, id.parse()?))
}

/// Returns the object `CONTAINER/ID`; its container must exist, the object need not.
pub fn object(store: &Store, name: &OsStr) -> Result<Object> {
    let (container, id) = split::<ObjectId>(name, "object")?;
    Ok(store.container(container)?.object(id))
}

/// Returns the index `CONTAINER/ID`; its container must exist, the index need not.
pub fn index(store: &Store, name: &OsStr) -> Result<Index> {
    let (container, id) = split::<IndexId>(name, "index")?;
    Ok(store.container(container)?.index(id))
}

/// A container, or something in it.
pub enum Target<'a, Id> {
    /// `CONTAINER`
    Container(&'a str),
    /// `CONTAINER/ID`
    Inside(&'a str, Id),
}

/// Parses `CONTAINER` or `CONTAINER/ID`. An ambiguous text is the container, if one has that label.
pub fn either<'a, Id: FromStr<Err = Error>>(store: &Store, name: &'a OsStr) -> Result<Target<'a, Id>> {
    let text = label(name)?;
    let Some((container, id)) = text.rsplit_once('/').filter(|(container, _)| !container.is_empty()) else {
        return Ok(Target::Container(text));
    };
    match (store.container(text), id.parse()) {
        (Ok(_), _) => Ok(Target::Container(text)),
        (Err(error), Ok(id)) if error.kind() == ErrorKind::NotFound => Ok(Target::Inside(container, id)),
        // `runs/notes` with an existing container `runs`: the id is wrong.
        (Err(error), Err(bad_id)) if error.kind() == ErrorKind::NotFound && store.container(container).is_ok() => {
            Err(bad_id)
        }
        // Its content is gone, and its name is there.
        (Err(_), _) if is_lost(store, text) => Ok(Target::Container(text)),
        (Err(error), _) => Err(error),
    }
}

/// Returns true for a container that was lost with a node of the cluster.
pub fn is_lost(store: &Store, label: &str) -> bool {
    store.lost_containers(label).is_ok_and(|all| all.iter().any(|(lost, _)| lost == label))
}

/// Returns a container by label; the error for a missing one names the next step.
pub fn container(store: &Store, name: &OsStr) -> Result<Container> {
    store.container(label(name)?)
}

/// Returns the bytes of a key or value: those of the argument, or of its hexadecimal digits.
pub fn bytes(argument: &OsStr, hex: bool) -> Result<Vec<u8>> {
    let raw = argument.as_bytes();
    if !hex {
        return Ok(raw.to_vec());
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    let pairs = raw.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>().ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("hexadecimal `{}`", crate::out::escaped(raw)))
            .because("it is not an even number of digits 0-9, a-f")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_names_split_at_the_last_slash() {
        let (container, id) = split::<ObjectId>(OsStr::new("a/b/2a"), "object").unwrap();
        assert_eq!((container, id), ("a/b", ObjectId(0x2a)));
        for bad in ["", "runs", "runs/", "/2a", "runs/xyz", "runs/000000000000000000000000000000000"] {
            assert_eq!(
                split::<ObjectId>(OsStr::new(bad), "object").unwrap_err().kind(),
                ErrorKind::InvalidInput,
                "{bad}"
            );
        }
        assert!(split::<ObjectId>(OsStr::from_bytes(b"\xff/1"), "object").is_err());
    }

    #[test]
    fn hexadecimal_keys_are_bytes() {
        assert_eq!(bytes(OsStr::new("00fF"), true).unwrap(), [0, 255]);
        assert_eq!(bytes(OsStr::new("00fF"), false).unwrap(), b"00fF");
        assert!(bytes(OsStr::new("0"), true).is_err());
        assert!(bytes(OsStr::new("zz"), true).is_err());
    }
}
