//! What somebody may have meant.

/// ` (did you mean NAME?)` if a known name is near, nothing else.
pub fn nearest(unknown: &str, known: &[&str]) -> String {
    let distance =
        |name: &str| strsim::damerau_levenshtein(&unknown.to_lowercase(), &name.to_lowercase());
    let near = known.iter().map(|name| (distance(name), name)).min();
    match near {
        Some((distance, name)) if distance <= unknown.len().max(3) / 3 => {
            format!(" (did you mean {name}?)")
        }
        _ => String::new(),
    }
}
