//! The available policies: built-in ones, the users' rules, and plugins.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, PluginState, PolicyState, Response, Result};
use cenote_policy::schema::{Lifecycle, Schema};
use cenote_policy::{Policy, User, by_name};

use super::Tiering;
use crate::engine::core::Core;

/// The file in the store directory with the users' rules.
pub const POLICY_FILE: &str = "policy.toml";
/// The policy that follows these rules.
pub(crate) const USER: &str = "user";
/// Longest schema, in bytes.
const TEXT_BYTES_MAX: usize = 1 << 20;
/// Most labels in an answer.
pub const FOLLOWERS_MAX: usize = 1000;

/// Policies by name, each made once.
#[derive(Default)]
pub struct Policies {
    made: BTreeMap<String, Arc<dyn Policy>>,
    /// Plugins, guarded by their loader.
    plugins: BTreeMap<String, Arc<dyn Policy>>,
    /// Plugins that could not be loaded, and why.
    missing: Vec<(String, String)>,
    user: Option<Arc<dyn Policy>>,
    /// The users' rules in force, as text.
    text: String,
    pub lifecycle: Vec<Lifecycle>,
    /// Why the file that was found is not in force.
    broken: Vec<String>,
    refused: String,
}

impl Policies {
    /// Returns a policy by its name, or `None` if there is none.
    pub fn named(&mut self, name: &str) -> Option<Arc<dyn Policy>> {
        if name == USER {
            return self.user.clone();
        }
        if let Some(plugin) = self.plugins.get(name) {
            return Some(Arc::clone(plugin));
        }
        if !self.made.contains_key(name) {
            self.made.insert(name.to_owned(), by_name(name)?);
        }
        self.made.get(name).cloned()
    }
    fn follow(&mut self, text: &str, mut schema: Schema) {
        // The engine itself applies the life-cycle rules, to all containers.
        self.lifecycle = std::mem::take(&mut schema.lifecycle);
        self.user = Some(Arc::new(User::new(Arc::new(schema))));
        text.clone_into(&mut self.text);
        self.broken.clear();
    }
}

impl Tiering {
    /// Adds a policy of a plugin, which containers choose by its name. The caller guards it
    /// ([`cenote_policy::Guard`]). Fails if a built-in policy has that name.
    pub fn add_policy(&mut self, core: &mut Core, policy: Arc<dyn Policy>) -> Result<()> {
        let name = policy.name().to_owned();
        if by_name(&name).is_some() || name == USER {
            return Err(Error::new(ErrorKind::InvalidInput, format!("policy `{name}`"))
                .because("Cenote has one of that name")
                .try_next("give it another name"));
        }
        core.state.containers.policies.insert(name.clone());
        self.policies.plugins.insert(name, policy);
        Ok(())
    }

    /// Notes a plugin that could not be loaded, to be reported with the others.
    pub fn note_missing_policy(&mut self, what: &str, why: &str) {
        self.policies.missing.push((what.to_owned(), why.to_owned()));
    }

    /// Puts the rules of the store directory into force, if they are valid.
    pub fn read_policy(&mut self, core: &mut Core) {
        let bytes = match core.seams.meta.read_file(POLICY_FILE) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(error) => {
                self.policies.broken = vec![error.to_string()];
                return;
            }
        };
        let text = String::from_utf8_lossy(&bytes);
        match Schema::parse(&text) {
            // Tiers may be away for now: rules about them are skipped.
            Ok(schema) => {
                self.policies.follow(&text, schema);
                core.state.containers.policies.insert(USER.to_owned());
            }
            Err(fault) => self.policies.broken = vec![fault.to_string()],
        }
    }

    /// Puts rules into force, or removes them (`None`). Fails if they have faults or the file cannot be written; the
    /// old rules stay in force then.
    pub fn policy_set(&mut self, core: &mut Core, text: Option<&str>, dry_run: bool) -> Result<Response> {
        core.update_clock();
        let Some(text) = text else {
            if !dry_run {
                match core.seams.meta.remove(POLICY_FILE) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let Policies { plugins, missing, .. } = std::mem::take(&mut self.policies);
                self.policies = Policies { plugins, missing, ..Policies::default() };
                core.state.containers.policies.remove(USER);
                self.rules.forget();
            }
            return Ok(Response::Done);
        };
        let schema = checked(core, text).map_err(|faults| {
            let all = faults.join("; ");
            if !dry_run {
                self.policies.refused.clone_from(&all);
            }
            let stays = if self.policies.text.is_empty() { "" } else { "; the one before is followed on" };
            Error::new(ErrorKind::InvalidInput, "the policy")
                .because(all)
                .try_next(format!("mend these lines and set it again{stays}"))
        })?;
        if !dry_run {
            core.seams.meta.write_file(POLICY_FILE, text.as_bytes())?;
            self.policies.follow(text, schema);
            self.policies.refused.clear();
            core.state.containers.policies.insert(USER.to_owned());
            self.rules.forget();
        }
        Ok(Response::Done)
    }

    /// Returns the rules in force, their faults, followers and results, and the plugins.
    pub fn policy_show(&mut self, core: &mut Core) -> PolicyState {
        let policies = &self.policies;
        let mut faults = policies.broken.clone();
        if !policies.text.is_empty() {
            faults.extend(checked(core, &policies.text).err().unwrap_or_default());
        }
        let mut followers: Vec<String> = (core.state.containers.iter())
            .filter(|container| container.snapshot.is_none() && container.spec.policy == USER)
            .map(|container| container.label.clone())
            .collect();
        followers.sort_unstable();
        followers.truncate(FOLLOWERS_MAX);
        let state = |policy: &Arc<dyn Policy>| PluginState {
            name: policy.name().to_owned(),
            about: policy.about().to_owned(),
            failure: policy.failure().map(|why| why.to_string()).unwrap_or_default(),
        };
        let gone = |(what, why): &(String, String)| PluginState {
            name: what.clone(),
            about: String::new(),
            failure: format!("was not loaded: {why}"),
        };
        PolicyState {
            text: policies.text.clone(),
            faults,
            refused: policies.refused.clone(),
            followers,
            plugins: policies.plugins.values().map(state).chain(policies.missing.iter().map(gone)).collect(),
            rules: self.rule_states(),
            deletes_held: core.state.times.held_why(),
        }
    }

    /// Describes which policy decides for a container, and what is wrong with it, if anything.
    pub fn policy_words(&mut self, name: &str) -> String {
        let name = if name.is_empty() { "fast-first" } else { name };
        match self.policies.named(name) {
            Some(policy) => {
                let failure = policy.failure().map(|why| format!("; it {why}")).unwrap_or_default();
                format!("placement policy `{name}`: {}{failure}", policy.about())
            }
            None if name == USER => {
                let why = self.policies.broken.first().map_or("there is none", String::as_str);
                format!("placement policy `{name}`: without a file of rules ({why}), so `fast-first` decides")
            }
            None => format!("placement policy `{name}`: from a plugin that is not loaded, so `fast-first` decides"),
        }
    }
}

/// Parses and checks a schema against the tiers. Fails with every fault.
fn checked(core: &Core, text: &str) -> Result<Schema, Vec<String>> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(vec![format!("it has {} bytes, at most {TEXT_BYTES_MAX} are read", text.len())]);
    }
    let schema = Schema::parse(text).map_err(|fault| vec![fault.to_string()])?;
    let faults: Vec<String> = schema.check(&super::view::tier_views(core)).iter().map(ToString::to_string).collect();
    if faults.is_empty() { Ok(schema) } else { Err(faults) }
}
