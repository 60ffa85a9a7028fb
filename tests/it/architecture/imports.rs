//! Which file of `src` imports which, read from the text of the files.
//!
//! An import leads to the file that defines the name: re-exports are followed. So `mod x;` and `pub
//! use x::Y;` alone are no import; a file that uses `Y` itself imports `x`, also where it
//! re-exports it. A file that uses what its parent module defines imports the parent. Tests import
//! what they like: what stands from `#[cfg(test)]` on is not read, nor are modules of tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Segments of a path, from the crate's root.
type Segments = Vec<String>;

/// A module that is a file.
struct Module {
    /// The file, below `src`.
    file: String,
    uses: Vec<Use>,
    /// Paths that stand elsewhere than in a `use`, and names.
    paths: BTreeSet<Segments>,
}

/// One name of a `use`.
struct Use {
    public: bool,
    path: Segments,
    name: String,
}

/// All modules of the crate.
pub(super) struct Crate(BTreeMap<Segments, Module>);

/// The code of a file: without comments and without its tests.
pub(super) fn code(path: &Path) -> String {
    let (code, _) = without_tests(&fs::read_to_string(path).unwrap());
    let lines = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Files of Rust in a directory, or the file itself.
pub(super) fn sources(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
}

/// The text before its tests, and the modules that are declared for tests.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut code, mut tests) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == "#[cfg(test)]" {
            match lines.next().and_then(|item| item.strip_prefix("mod ")?.strip_suffix(';')) {
                Some(module) => tests.push(module.to_owned()),
                None => break,
            }
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    (code, tests)
}

impl Crate {
    pub(super) fn read(src: &Path) -> Crate {
        let mut modules = BTreeMap::new();
        let mut exempt = BTreeSet::new();
        for path in sources(src) {
            let file = path.strip_prefix(src).unwrap().to_str().unwrap().to_owned();
            let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
            let mut segments: Segments = name.split('/').map(str::to_owned).collect();
            segments.retain(|segment| segment != "lib");
            let (code, tests) = without_tests(&fs::read_to_string(&path).unwrap());
            exempt.extend(tests.into_iter().map(|test| [segments.clone(), vec![test]].concat()));
            modules.insert(segments, Module::parse(file, &code));
        }
        modules.retain(|at, _| !(0..=at.len()).any(|end| exempt.contains(&at[..end])));
        Crate(modules)
    }

    /// Each file with those that it imports, named without `.rs`: `ledger/event`.
    pub(super) fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |module: &Module| module.file.trim_end_matches(".rs").to_owned();
        let named =
            |targets: BTreeSet<&Segments>| targets.iter().map(|at| of(&self.0[*at])).collect();
        self.0.iter().map(|(at, module)| (of(module), named(self.targets(at, module)))).collect()
    }

    fn targets(&self, at: &Segments, module: &Module) -> BTreeSet<&Segments> {
        let is_used = |name: &String| module.paths.iter().any(|path| path[0] == *name);
        let uses = module.uses.iter().filter(|used| !used.public || is_used(&used.name));
        let uses = uses.filter_map(|used| self.absolute(at, &used.path));
        let paths = module.paths.iter().filter(|path| path.len() > 1).filter_map(|path| {
            let used = module.uses.iter().find(|used| used.name == path[0]);
            let used = used.and_then(|used| self.absolute(at, &used.path));
            used.map(|used| [&used, &path[1..]].concat()).or_else(|| self.absolute(at, path))
        });
        let mut targets: BTreeSet<&Segments> =
            uses.chain(paths).filter_map(|path| self.definition(&path)).collect();
        targets.remove(at);
        targets
    }

    /// The path from the crate's root; `None` for what is another crate's.
    fn absolute(&self, at: &Segments, path: &[String]) -> Option<Segments> {
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([at, &path[1..]].concat()),
            "super" => {
                let ups = path.iter().take_while(|segment| *segment == "super").count();
                Some([&at[..at.len() - ups], &path[ups..]].concat())
            }
            _ => {
                let below = [at, path].concat();
                self.0.contains_key(&below[..=at.len()]).then_some(below)
            }
        }
    }

    /// The module that defines what a path names.
    fn definition(&self, path: &[String]) -> Option<&Segments> {
        let (at, module) =
            (0..=path.len()).rev().find_map(|end| self.0.get_key_value(&path[..end]))?;
        let rest = &path[at.len()..];
        let name = rest.first();
        match module.uses.iter().find(|used| Some(&used.name) == name) {
            Some(used) => self.definition(&[&self.absolute(at, &used.path)?, &rest[1..]].concat()),
            None => Some(at),
        }
    }
}

/// Files that import each other, also by way of others: each such set.
pub(super) fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<BTreeSet<String>> {
    let reach = |from: &String| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(file) = open.pop() {
            open.extend(imports[file].iter().filter(|next| reached.insert((*next).clone())));
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|file| (file, reach(file))).collect();
    let circle = |file: &String| {
        let mutual = reached[file].iter().filter(|other| reached[*other].contains(file));
        mutual.cloned().collect::<BTreeSet<String>>()
    };
    imports.keys().map(circle).filter(|circle| !circle.is_empty()).collect()
}

impl Module {
    fn parse(file: String, code: &str) -> Module {
        let tokens = tokens(code);
        let (mut uses, mut paths) = (Vec::new(), BTreeSet::new());
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at] == "use" {
                let public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
                let end = at + tokens[at..].iter().position(|token| *token == ";").unwrap();
                tree(&tokens[at + 1..end], &[], &mut |path, name| {
                    uses.push(Use { public, path: path.to_vec(), name: name.to_owned() });
                });
                at = end;
            } else if is_name(tokens[at]) {
                let mut path = vec![tokens[at].to_owned()];
                while tokens.get(at + 1) == Some(&"::")
                    && let Some(next) = tokens.get(at + 2).filter(|next| is_name(next))
                {
                    path.push((*next).to_owned());
                    at += 2;
                }
                paths.insert(path);
            }
            at += 1;
        }
        Module { file, uses, paths }
    }
}

/// Calls `each` with every path of a `use`, and the name that it has from then on.
fn tree(tokens: &[&str], before: &[String], each: &mut dyn FnMut(&[String], &str)) {
    let mut path = before.to_vec();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match *token {
            "{" => {
                let inner = &tokens[at + 1..tokens.len() - 1];
                let (mut depth, mut start) = (0, 0);
                for (end, token) in inner.iter().chain([&","]).enumerate() {
                    match *token {
                        "{" => depth += 1,
                        "}" => depth -= 1,
                        "," if depth == 0 => {
                            if start < end {
                                tree(&inner[start..end], &path, each);
                            }
                            start = end + 1;
                        }
                        _ => {}
                    }
                }
                return;
            }
            "as" => return each(&path, tokens[at + 1]),
            "self" if !path.is_empty() => {}
            "*" | "::" => {}
            name => path.push(name.to_owned()),
        }
        at += 1;
    }
    let name = path.last().cloned().unwrap_or_default();
    each(&path, if tokens.last() == Some(&"*") { "*" } else { &name });
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single characters; not comments and what stands in quotation marks.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        let end = match first {
            '"' => {
                let mut escaped = true;
                let close = |c: char| {
                    let closes = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    closes
                };
                rest.find(close).map_or(rest.len(), |end| end + 1)
            }
            first if in_name(first) => rest.find(|c| !in_name(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '\'' if rest.starts_with("'\"'") => 3,
            first => first.len_utf8(),
        };
        if !rest.starts_with(['"', '/']) {
            tokens.push(&rest[..end]);
        }
        rest = rest[end..].trim_start();
    }
    tokens
}
