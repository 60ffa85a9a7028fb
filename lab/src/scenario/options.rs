//! Options that choose between valid placements. Each is tested on a node where the same container
//! gets another placement without the option, which is checked first: an option without effect
//! fails.

use cpuset::CpuSet;

use super::exclusive;
use super::invariants::parse;
use super::script::Script;
use super::shape::Shape;
use crate::step::Step;
use crate::view::View;

/// What is wrong with a placement, in words; nothing if it is as the option promises.
type Judge = Box<dyn Fn(&View) -> Option<String>>;

/// A container `db` on a partly filled node, without an option and with it.
struct Contrast {
    /// Configuration in both cases.
    base: &'static str,
    /// The option's line of the configuration.
    option: &'static str,
    /// Sizes of the exclusive containers that start first.
    others: Vec<usize>,
    /// Exclusive CPUs of `db`.
    size: usize,
    judge: Judge,
}

impl Contrast {
    fn script(self, shape: &Shape) -> Script {
        let Self { base, option, others, size, judge } = self;
        let judge = std::rc::Rc::new(judge);
        let mut script = Script::new(shape);
        script.plugin(shape.config(base));
        script.shared("web");
        others_first(&mut script, others);
        script.exclusive("db", size);
        let without = judge.clone();
        script.view_where(move |view| {
            let why = || format!("db has {} also without the option", view.allowed("db"));
            without(view).map(|_| ()).ok_or_else(why)
        });
        script.remove("db");
        script.does(Step::Reconfigure(shape.config(&format!("{base}\n{option}"))));
        script.exclusive("db", size);
        script.view_where(move |view| judge(view).map_or(Ok(()), Err));
        script
    }
}

/// One exclusive container per size.
fn others_first(script: &mut Script, sizes: Vec<usize>) {
    for (number, cpus) in sizes.into_iter().enumerate() {
        script.exclusive(&format!("other-{number}"), cpus);
    }
}

/// CPUs of the pod per set, without sets that have none.
pub(super) fn parts(view: &View, pod: &str, sets: &[CpuSet]) -> Vec<usize> {
    let own = parse(view.allowed(pod));
    sets.iter().map(|set| (*set & own).len()).filter(|count| *count > 0).collect()
}

/// KEP-4800: a container that fits into one uncore cache is in one. Without the option, the last
/// free core of the first cache is used before another cache.
pub(super) fn uncore(shape: &Shape) -> Option<Script> {
    let free = shape.free();
    let caches = shape.caches();
    let (first, rest) = caches.split_first()?;
    let left = (*first & free).len();
    let left_over = left.min(shape.threads());
    let size = 2 * shape.threads();
    // Only whole cores count.
    let cores = shape.cores();
    let whole = cores.iter().filter(|core| core.len() == shape.threads() && core.is_subset(&free));
    let whole: CpuSet = whole.copied().collect();
    let fits = rest.iter().any(|cache| (*cache & whole).len() >= size);
    // Without the option, a container of a whole NUMA node is not split either.
    let whole_node = shape.nodes().iter().any(|node| (*node & free).len() <= size);
    if left_over == 0 || !fits || whole_node {
        return None;
    }
    let contrast = Contrast {
        base: "",
        option: "cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: \"true\"}",
        others: Some(left - left_over).filter(|cpus| *cpus > 0).into_iter().collect(),
        size,
        judge: Box::new(move |view| match &parts(view, "db", &caches)[..] {
            [_] => None,
            parts => Some(format!("db has {parts:?} CPUs in its uncore caches: one would suffice")),
        }),
    };
    Some(contrast.script(shape))
}

/// KEP-2902: equal parts. Without the option, the container fills one NUMA node and gets the rest
/// from another.
pub(super) fn distributed(shape: &Shape) -> Option<Script> {
    let nodes = shape.nodes();
    let (most, threads) = (shape.most_in(&nodes), shape.threads());
    let half = (most / 2 / threads + 1) * threads;
    let with_room = nodes.iter().filter(|node| (**node & shape.free()).len() >= half).count();
    if with_room < 2 || half == most {
        return None;
    }
    let contrast = Contrast {
        base: "",
        option: "cpuManagerPolicyOptions: {distribute-cpus-across-numa: \"true\"}",
        others: Vec::new(),
        size: 2 * half,
        judge: Box::new(move |view| {
            let parts = parts(view, "db", &nodes);
            let even = parts.len() > 1 && parts.iter().all(|part| Some(part) == parts.first());
            (!even).then(|| format!("db has {parts:?} CPUs on its NUMA nodes: not equal parts"))
        }),
    };
    Some(contrast.script(shape))
}

/// KEP-3327: a container that would fit into one empty NUMA node is in two nodes of one socket.
/// Without the option, `restricted` refuses it.
pub(super) fn one_socket(shape: &Shape) -> Option<Script> {
    let (nodes, sockets, threads) = (shape.nodes(), shape.sockets(), shape.threads());
    // Each node keeps one free core.
    let rooms = nodes.iter().map(|node| (*node & shape.free()).len());
    let others: Option<Vec<usize>> =
        rooms.map(|room| room.checked_sub(threads).filter(|other| *other > threads)).collect();
    if sockets.len() < 2 || nodes.len() <= sockets.len() {
        return None;
    }
    let policy =
        |options: &str| shape.config(&format!("topologyManagerPolicy: restricted\n{options}"));
    let mut script = Script::new(shape);
    script.plugin(policy(""));
    script.shared("web");
    others_first(&mut script, others?);
    script.refused(Step::Run(exclusive("db", 2 * threads)), "TopologyAffinityError");
    script.does(Step::Reconfigure(policy("cpuManagerPolicyOptions: {align-by-socket: \"true\"}")));
    script.does(Step::Retry("db".to_owned()));
    script.view_where(move |view| {
        match (parts(view, "db", &nodes).len(), parts(view, "db", &sockets).len()) {
            (2, 1) => Ok(()),
            (nodes, sockets) => Err(format!(
                "db is in {nodes} NUMA nodes and {sockets} sockets: {}",
                view.allowed("db")
            )),
        }
    });
    Some(script)
}

/// KEP-3545: a closest pair of NUMA nodes with room. Without the option, it is the first pair.
pub(super) fn closest(shape: &Shape) -> Option<Script> {
    let (nodes, distances) = (shape.nodes(), shape.distances());
    let size = shape.most_in(&nodes) + 1;
    let distance = |a: usize, b: usize| distances.get(a)?.get(b).copied();
    let near =
        pairs(&nodes, |_, _| true).iter().filter_map(|pair| distance(pair.a, pair.b)).min()?;
    let pairs = pairs(&nodes, |a, b| distance(a, b) == Some(near));
    let contrast = Contrast {
        base: "topologyManagerPolicy: restricted",
        option: "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"true\"}",
        others: others_than(&pairs, shape, size)?,
        size,
        judge: Box::new(move |view| {
            let own = parse(view.allowed("db"));
            let is_near = pairs.iter().any(|pair| pair.good && own.is_subset(&pair.cpus));
            (!is_near).then(|| format!("db has {own}: not on two nodes at distance {near}"))
        }),
    };
    Some(contrast.script(shape))
}

struct Pair {
    a: usize,
    b: usize,
    cpus: CpuSet,
    /// Whether the option prefers this pair.
    good: bool,
}

/// All pairs of nodes in the order of their bit masks, in which they are tried.
fn pairs(nodes: &[CpuSet], good: impl Fn(usize, usize) -> bool) -> Vec<Pair> {
    let places = (0..nodes.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
    let pair = |(a, b)| Pair { a, b, cpus: nodes[a] | nodes[b], good: good(a, b) };
    places.map(pair).collect()
}

/// Sizes of containers that fill NUMA nodes, starting with the second, until the first pair with
/// room is not a good one but a later one is.
fn others_than(pairs: &[Pair], shape: &Shape, size: usize) -> Option<Vec<usize>> {
    let rooms: Vec<usize> = shape.nodes().iter().map(|n| (*n & shape.free()).len()).collect();
    let (first, rest) = rooms.split_first()?;
    (1..=rest.len()).map(|filled| &rest[..filled]).find_map(|others| {
        let is_open = |at: usize| at == 0 || at > others.len();
        let mut open = pairs.iter().filter(|pair| {
            is_open(pair.a) && is_open(pair.b) && rooms[pair.a] + rooms[pair.b] >= size
        });
        // Each must go to the node that it fills, not to the first one.
        let fits = others.iter().all(|room| room > first);
        let contrary = open.next().is_some_and(|first| !first.good) && open.any(|pair| pair.good);
        (fits && contrary).then(|| others.to_vec())
    })
}
