//! Quantiles from which gaps between arrivals and lifetimes are drawn, in thousandths of the scale:
//! integers, so that the workload is the same on every machine and in every language.

/// Quantiles of an exponential distribution.
pub(super) const EXPONENTIAL: [u64; 64] = [
    8, 24, 40, 56, 73, 90, 107, 125, 143, 161, 179, 198, 217, 237, 257, 277, 298, 319, 341, 363,
    386, 409, 433, 458, 483, 508, 535, 562, 589, 618, 647, 678, 709, 741, 774, 809, 845, 882, 920,
    960, 1002, 1045, 1091, 1138, 1188, 1241, 1297, 1356, 1418, 1485, 1556, 1633, 1717, 1808, 1908,
    2019, 2144, 2287, 2454, 2655, 2906, 3243, 3753, 4852,
];

/// Quantiles of a log-normal distribution: many short lifetimes and a few long ones.
pub(super) const LOG_NORMAL: [u64; 64] = [
    54, 83, 104, 122, 139, 155, 170, 185, 199, 214, 228, 243, 257, 272, 286, 301, 317, 332, 348,
    364, 380, 397, 414, 432, 450, 469, 488, 508, 529, 550, 572, 595, 619, 643, 669, 696, 724, 754,
    785, 817, 852, 888, 926, 967, 1011, 1058, 1108, 1162, 1221, 1284, 1354, 1431, 1517, 1613, 1721,
    1846, 1992, 2166, 2378, 2647, 3007, 3531, 4426, 6804,
];
