//! HDF5 filters and Zarr codecs with the same output.

use cenote_hdf5::data::filter::{self, Pipeline};
use cenote_hdf5::props::Filter;
use serde_json::{Value, json};

use crate::{Result, refused};

const BZIP2: u32 = 307;
const BLOSC: u32 = 32001;
const ZSTD: u32 = 32015;
/// Compressors of Blosc by HDF5's numbers; Zarr has no snappy.
const BLOSC_NAMES: [&str; 6] = ["blosclz", "lz4", "lz4hc", "", "zlib", "zstd"];
const BLOSC_SHUFFLES: [&str; 3] = ["noshuffle", "shuffle", "bitshuffle"];

/// How Zarr sees a dataset's chunks.
#[derive(Clone, PartialEq, Debug)]
pub enum Sharing {
    /// Byte for byte as HDF5 stores them, through these codecs.
    Shared(Vec<Codec>),
    /// Unfiltered bytes, filtered and unfiltered on the way, with the reason.
    Converted(String),
}

/// A codec with the same output as a filter.
#[derive(Clone, PartialEq, Debug)]
pub struct Codec {
    id: &'static str,
    config: Value,
}

impl Codec {
    fn new(id: &'static str, config: Value) -> Self {
        Self { id, config }
    }
    /// Its name and configuration in format 3.
    pub fn v3(&self) -> Value {
        let name = match self.id {
            "zstd" | "blosc" => self.id.to_owned(),
            id => format!("numcodecs.{id}"),
        };
        let mut config = self.config.clone();
        if self.id == "zstd" {
            config["checksum"] = json!(false);
        }
        json!({"name": name, "configuration": config})
    }
    /// Its configuration in format 2.
    pub fn v2(&self) -> Value {
        let mut config = self.config.clone();
        config["id"] = json!(self.id);
        if self.id == "blosc" {
            let number = BLOSC_SHUFFLES.iter().position(|name| json!(name) == config["shuffle"]);
            config["shuffle"] = json!(number);
            if let Some(fields) = config.as_object_mut() {
                fields.remove("typesize");
            }
        }
        config
    }
    /// Returns true for codecs that must be last in format 2.
    pub fn is_compressor(&self) -> bool {
        !matches!(self.id, "shuffle" | "fletcher32")
    }
}

/// How Zarr sees chunks with this pipeline; an error text if it cannot.
pub fn sharing(pipeline: &Pipeline) -> std::result::Result<Sharing, String> {
    let codecs: Option<Vec<Codec>> = pipeline.filters.iter().map(codec_of).collect();
    if let Some(codecs) = codecs {
        return Ok(Sharing::Shared(codecs));
    }
    let names: Vec<String> =
        pipeline.filters.iter().filter(|f| codec_of(f).is_none()).map(|f| filter::name(f.id)).collect();
    let names = names.join(", ");
    if pipeline.is_ours() {
        Ok(Sharing::Converted(format!("Zarr has no codec for {names}: chunks are given and taken without filters")))
    } else {
        Err(format!("Zarr has no codec for {names}, which HDF5 alone can undo"))
    }
}

fn codec_of(filter: &filter::Filter) -> Option<Codec> {
    let param = |i: usize| filter.params.get(i).copied();
    Some(match filter.id {
        filter::DEFLATE => Codec::new("zlib", json!({"level": param(0).filter(|level| *level <= 9)?})),
        filter::SHUFFLE => Codec::new("shuffle", json!({"elementsize": param(0)?})),
        filter::FLETCHER32 => Codec::new("fletcher32", json!({})),
        BZIP2 => Codec::new("bz2", json!({"level": param(0).unwrap_or(9)})),
        ZSTD => Codec::new("zstd", json!({"level": param(0).unwrap_or(3)})),
        BLOSC => {
            let name = BLOSC_NAMES.get(param(6).unwrap_or(0) as usize).filter(|name| !name.is_empty())?;
            let shuffle = BLOSC_SHUFFLES.get(param(5).unwrap_or(1) as usize)?;
            let (bytes, level) = (param(2)?, param(4).unwrap_or(5));
            Codec::new(
                "blosc",
                json!({"cname": name, "clevel": level, "shuffle": shuffle, "typesize": bytes, "blocksize": 0}),
            )
        }
        _ => return None,
    })
}

/// The filter with the same output as a codec (of format 3, or with format 2's `id`), for chunks of `chunk_bytes`.
pub fn filter_of(codec: &Value, element_bytes: u64, chunk_bytes: u64) -> Result<Filter> {
    let id = codec["id"].as_str().or_else(|| codec["name"].as_str()).unwrap_or_default();
    let config = if codec["id"].is_string() { codec } else { &codec["configuration"] };
    let id = id.strip_prefix("numcodecs.").unwrap_or(id);
    let number = |name: &str, default: u32| config[name].as_u64().map_or(default, |n| n as u32);
    let made = |id: u32, name: &str, params: Vec<u32>| {
        Ok(Filter { id: id as i32, flags: filter::FLAG_OPTIONAL, params, name: name.into() })
    };
    match id {
        "zlib" => made(filter::DEFLATE, "deflate", vec![number("level", 1).min(9)]),
        "shuffle" if u64::from(number("elementsize", 4)) == element_bytes => {
            made(filter::SHUFFLE, "shuffle", vec![element_bytes as u32])
        }
        "shuffle" => Err(refused(
            "codec shuffle",
            format!("its elementsize is not that of an element, {element_bytes} bytes"),
            "give it that elementsize",
        )),
        "fletcher32" => {
            let mut filter = made(filter::FLETCHER32, "fletcher32", Vec::new())?;
            filter.flags = 0;
            Ok(filter)
        }
        "zstd" if config["checksum"] != json!(true) => made(ZSTD, "zstd", vec![zstd_level(config)]),
        "bz2" => made(BZIP2, "bzip2", vec![number("level", 1).clamp(1, 9)]),
        "blosc" => {
            let name = config["cname"].as_str().unwrap_or("lz4");
            let cname = BLOSC_NAMES.iter().position(|known| *known == name).filter(|_| !name.is_empty());
            let shuffle = match &config["shuffle"] {
                Value::Number(n) => n.as_i64().map(|n| if n < 0 { usize::from(element_bytes > 1) } else { n as usize }),
                other => BLOSC_SHUFFLES.iter().position(|known| json!(known) == *other),
            };
            let (Some(cname), Some(shuffle @ 0..=2)) = (cname, shuffle) else {
                return Err(refused("codec blosc", format!("HDF5 does not know {name} or its shuffle"), ""));
            };
            let params =
                [2, 2, element_bytes as u32, chunk_bytes as u32, number("clevel", 5), shuffle as u32, cname as u32];
            made(BLOSC, "blosc", params.to_vec())
        }
        other => Err(refused(
            format!("codec {other}"),
            "no filter of HDF5 makes the same bytes",
            "use numcodecs.zlib, numcodecs.shuffle, zstd or blosc, or no compressor (compressors=None)",
        )),
    }
}

fn zstd_level(config: &Value) -> u32 {
    // Zarr's default, 0, means zstd's default.
    match config["level"].as_i64() {
        Some(level @ 1..=22) => level as u32,
        _ => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_come_back_as_the_filters_that_they_stand_for() {
        let filters = [
            (filter::SHUFFLE, vec![8]),
            (filter::DEFLATE, vec![4]),
            (filter::FLETCHER32, vec![]),
            (BZIP2, vec![9]),
            (ZSTD, vec![5]),
            (BLOSC, vec![2, 2, 8, 800, 5, 1, 5]),
        ];
        for (id, params) in filters {
            let pipeline = Pipeline { filters: vec![filter::Filter { id, flags: 1, params: params.clone() }] };
            let Ok(Sharing::Shared(codecs)) = sharing(&pipeline) else { panic!("{id} is not shared") };
            for said in [codecs[0].v3(), codecs[0].v2()] {
                let back = filter_of(&said, 8, 800).unwrap();
                assert_eq!((back.id as u32, &back.params), (id, &params), "{said}");
            }
        }
    }

    #[test]
    fn what_cannot_be_shared_is_said() {
        let with = |id| Pipeline { filters: vec![filter::Filter { id, flags: 0, params: vec![] }] };
        assert!(matches!(sharing(&with(filter::LZF)), Ok(Sharing::Converted(why)) if why.contains("lzf")));
        assert!(sharing(&with(6)).unwrap_err().contains("scaleoffset"));
        assert!(filter_of(&json!({"name": "gzip", "configuration": {"level": 5}}), 4, 40).is_err());
    }
}
