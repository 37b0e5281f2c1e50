/**
 * What the metrics of relay and controller share.
 *
 * @module
 */

/** Upper bounds of a round's time, in seconds: from small sums in memory to large models on slow links. */
export const ROUND_SECONDS_BUCKETS = [
  0.001,
  0.0025,
  0.005,
  0.01,
  0.025,
  0.05,
  0.1,
  0.25,
  0.5,
  1,
  2.5,
  5,
  10,
  30,
  60,
  300,
];
