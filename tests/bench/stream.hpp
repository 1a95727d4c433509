#pragma once
/// What memory gives: plain loops over the same arrays as a kernel, with normal stores and stores
/// past the caches, with and without prefetching. STREAM's triad and copy and a read-modify-write
/// are among them.  McCalpin, "STREAM".

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "interleaved.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/runtime.hpp"

#if defined(__AVX512F__) || defined(__AVX__)
#include <immintrin.h>
#endif

namespace tessera::bench {

constexpr std::int64_t tile = 16384;

template <class Rule>
void over_tiles(std::int64_t n, Rule const& rule) {
#pragma omp parallel for schedule(static)
  for (std::int64_t index = 0; index < n / tile; ++index) rule(index);
}

/// The arrays that a loop moves, of 4 and of 2 bytes per element. What is updated is read and
/// written in its place.
struct Streams {
  int updated4 = 0, read4 = 0, written4 = 0;
  int updated2 = 0, read2 = 0, written2 = 0;

  constexpr int wide() const { return updated4 + read4 + written4; }
  constexpr int narrow() const { return updated2 + read2 + written2; }
  constexpr int bytes() const { return 4 * (wide() + updated4) + 2 * (narrow() + updated2); }
  constexpr bool writes() const { return updated4 + written4 + updated2 + written2 > 0; }
  constexpr bool operator==(Streams const&) const = default;
  /// With arrays of 2 bytes only, lines of memory are those of arrays of 4 bytes.
  constexpr Streams in_lines() const {
    return wide() > 0 ? *this : Streams{updated2, read2, written2};
  }
};

inline constexpr Streams triad{.read4 = 2, .written4 = 1}, copy{.read4 = 1, .written4 = 1},
    read_modify_write{.updated4 = 1};

inline std::string name_of(Streams const& s) {
  if (s == triad) return "triad";
  if (s == copy) return "copy";
  if (s == read_modify_write) return "read_modify_write";
  std::string name;
  auto const add = [&](int count, char const* text) {
    if (count > 0) name += (name.empty() ? "" : "_") + std::string(text) + std::to_string(count);
  };
  add(s.updated4, "update"), add(s.read4, "read"), add(s.written4, "write");
  add(s.updated2, "update_16bit"), add(s.read2, "read_16bit"), add(s.written2, "write_16bit");
  return name;
}

/// How a plain loop is written.
struct PlainLoopForm {
  char const* suffix;
  bool past_caches;  ///< stores
  int ahead;         ///< bytes that are asked for ahead; 0: none
  bool to_first;     ///< prefetched to the first-level cache, not the second
  int far;           ///< bytes that are also asked for ahead into the second; 0: none
  int lines;         ///< lines of an array of 2 bytes per element, read before any is written
};
inline constexpr PlainLoopForm forms[] = {
    {"", false, 0, true, 0, 1},
    {"_prefetched", false, 512, true, 0, 1},
    {"_prefetched_far", false, 1024, false, 0, 1},
    {"_prefetched_pages", false, 512, true, 4096, 1},
    {"_past_caches", true, 0, true, 0, 1},
    {"_past_caches_prefetched", true, 512, true, 0, 1},
    {"_past_caches_prefetched_pages", true, 512, true, 4096, 1},
    {"_past_caches_in_bursts", true, 512, true, 0, 4}};
inline constexpr int normal_forms = 4;  ///< the first ones

#if defined(__AVX512F__)
inline constexpr std::size_t vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr std::size_t vector_bytes = 32;
#else
inline constexpr std::size_t vector_bytes = 16;
#endif
using Vector = std::int32_t __attribute__((vector_size(vector_bytes), may_alias));

template <bool past_caches>
void put(std::byte* to, Vector value) {
#if defined(__AVX512F__)
  if constexpr (past_caches)
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)value);
#elif defined(__AVX__)
  if constexpr (past_caches)
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)value);
#endif
  *reinterpret_cast<Vector*>(to) = value;
}
inline Vector get(std::byte const* from) { return *reinterpret_cast<Vector const*>(from); }

/// In the order of Streams' members.
using Arrays = std::array<std::byte*, 8>;

/// GCC drops calls of functions that do nothing but prefetch.
#define TESSERA_INLINE inline __attribute__((always_inline))

/// One tile of the loop: integers, so that no value is slow.
template <Streams s, std::size_t form>
struct PlainLoop {
  static constexpr PlainLoopForm how = forms[form];
  Arrays arrays;
  std::byte* sums;  ///< a vector per tile, which the compiler keeps

  void operator()(std::int64_t index) const {
    Arrays const x = arrays;  // in registers
    Vector kept{};
    for (std::int64_t at = index * tile; at < (index + 1) * tile; at += group) {
      if constexpr (how.ahead > 0) ask_ahead(x, at);
#pragma GCC unroll 8
      for (std::int64_t i = at; i < at + group; i += step) move(x, i, kept);
    }
    if constexpr (!s.writes()) put<false>(sums + index * size, kept);
  }

 private:
  static constexpr std::int64_t size = vector_bytes;
  static constexpr int narrow_vectors = how.lines * 64 / vector_bytes,
                       wide_vectors = 2 * narrow_vectors;                  ///< that move() takes
  static constexpr std::int64_t step = how.lines * 32;                     ///< elements of move()
  static constexpr std::int64_t group = std::max<std::int64_t>(64, step);  ///< group of ask_ahead()
  static constexpr int wide_reads = s.updated4 + s.read4, narrow_reads = s.updated2 + s.read2;

  static TESSERA_INLINE std::byte* wide_at(Arrays const& x, int k, std::int64_t i) {
    return x[static_cast<std::size_t>(k)] + 4 * i;
  }
  static TESSERA_INLINE std::byte* narrow_at(Arrays const& x, int k, std::int64_t i) {
    return x[static_cast<std::size_t>(s.wide() + k)] + 2 * i;
  }
  /// Prefetches the arrays that are read, and those that are only written where normal stores read
  /// their lines.
  static TESSERA_INLINE void ask_ahead(Arrays const& x, std::int64_t at) {
    constexpr int wide = how.past_caches ? wide_reads : s.wide(),
                  narrow = how.past_caches ? narrow_reads : s.narrow();
#pragma GCC unroll 8
    for (int k = 0; k < wide; ++k)
      for (int line = 0; line < group * 4; line += 64)
        ask(wide_at(x, k, at) + line, k < s.updated4 || k >= wide_reads);
#pragma GCC unroll 8
    for (int k = 0; k < narrow; ++k)
      for (int line = 0; line < group * 2; line += 64)
        ask(narrow_at(x, k, at) + line, k < s.updated2 || k >= narrow_reads);
  }
  static TESSERA_INLINE void ask(std::byte const* address, bool to_write) {
    if (how.to_first && to_write)
      __builtin_prefetch(address + how.ahead, 1, 3);
    else
      __builtin_prefetch(address + how.ahead, 0, how.to_first ? 3 : 2);
    if constexpr (how.far > 0) __builtin_prefetch(address + how.far, 0, 2);
  }
  static TESSERA_INLINE void move(Arrays const& x, std::int64_t i, Vector& kept) {
    Vector sum[wide_vectors] = {}, wide[s.wide() + 1][wide_vectors],
           narrow[s.narrow() + 1][narrow_vectors];
#pragma GCC unroll 8
    for (int k = 0; k < wide_reads; ++k)
#pragma GCC unroll 8
      for (int v = 0; v < wide_vectors; ++v) {
        wide[k][v] = get(wide_at(x, k, i) + v * size);
        if (k >= s.updated4) sum[v] += wide[k][v];
      }
#pragma GCC unroll 8
    for (int k = 0; k < narrow_reads; ++k)
#pragma GCC unroll 8
      for (int v = 0; v < narrow_vectors; ++v) {
        narrow[k][v] = get(narrow_at(x, k, i) + v * size);
        if (k >= s.updated2) sum[v] += narrow[k][v];
      }
    if constexpr (s.writes())
      write(x, i, sum, wide, narrow);
    else
      for (int v = 0; v < wide_vectors; ++v) kept += sum[v];
  }
  static TESSERA_INLINE void write(Arrays const& x, std::int64_t i, Vector const* sum,
                                   Vector const (*wide)[wide_vectors],
                                   Vector const (*narrow)[narrow_vectors]) {
    if constexpr (s.updated4 + s.written4 > 0) {
#pragma GCC unroll 8
      for (int k = 0; k < s.wide(); ++k)
#pragma GCC unroll 8
        for (int v = 0; v < wide_vectors; ++v)
          if (k < s.updated4 || k >= wide_reads)
            put<how.past_caches>(wide_at(x, k, i) + v * size,
                                 k < s.updated4 ? wide[k][v] + sum[v] + 1 : sum[v]);
    }
    if constexpr (s.updated2 + s.written2 > 0) {
#pragma GCC unroll 8
      for (int k = 0; k < s.narrow(); ++k)
#pragma GCC unroll 8
        for (int v = 0; v < narrow_vectors; ++v)
          if (k < s.updated2 || k >= narrow_reads)
            put<how.past_caches>(narrow_at(x, k, i) + v * size,
                                 k < s.updated2 ? narrow[k][v] + sum[v] + 1 : sum[v]);
    }
  }
};

/// A plain loop over arrays in all forms.
struct Sweep {
  Streams streams;  ///< arrays as the kernel has them
  Streams lines;    ///< arrays as the loop has them
  using Run = void (*)(std::int64_t n, Arrays const& arrays, std::byte* sums);
  std::array<Run, std::size(forms)> run;
  int form_count;
};

template <Streams lines, std::size_t form>
void run_plain_loop(std::int64_t n, Arrays const& arrays, std::byte* sums) {
  over_tiles(n, PlainLoop<lines, form>{arrays, sums});
}

template <Streams lines, std::size_t... form>
Sweep sweep_in_forms(Streams streams, std::index_sequence<form...>) {
  static_assert(lines.wide() + lines.narrow() <= 8);
  return {streams,
          lines,
          {run_plain_loop<lines, form>...},
          lines.writes() ? static_cast<int>(sizeof...(form)) : normal_forms};
}
template <Streams s>
Sweep sweep_of() {
  return sweep_in_forms<s.in_lines()>(s, std::make_index_sequence<std::size(forms)>());
}

/// A kernel to time: the arrays that it must move, one sweep after the other.
struct Metric {
  std::string name;
  std::vector<Sweep> sweeps;
  std::function<void()> work;
  double bytes = 0.0;  ///< 0: of as many elements as the baselines have

  double bytes_per_element() const {
    double sum = 0.0;
    for (auto const& sweep : sweeps) sum += sweep.streams.bytes();
    return sum;
  }
};

/// The arrays of the baselines and their times.
class Baselines {
 public:
  /// @param n elements of each array, beyond the caches; a multiple of `tile`
  Baselines(std::int64_t n, std::vector<Metric> const& metrics)
      : n_(n), sweeps_{sweep_of<triad>(), sweep_of<copy>(), sweep_of<read_modify_write>()} {
    int arrays = 0;
    for (auto const& metric : metrics)
      for (auto const& sweep : metric.sweeps)
        if (index_of(sweep.lines) == sweeps_.size()) sweeps_.push_back(sweep);
    for (auto const& sweep : sweeps_)
      arrays = std::max(arrays, sweep.lines.wide() + sweep.lines.narrow());
    for (int k = 0; k <= arrays; ++k)
      memory_.emplace_back("baseline", memory::Purpose::workspace,
                           static_cast<std::size_t>(n) * (k < arrays ? 4 : 1));
    for (int k = 0; k < arrays; ++k) arrays_[k] = static_cast<std::byte*>(memory_[k].data());
    over_tiles(n, [&](std::int64_t index) {  // first touch by the thread that will use it
      for (int k = 0; k < arrays; ++k)
        std::fill_n(reinterpret_cast<std::int32_t*>(arrays_[k]) + index * tile, tile, 1);
    });
    for (auto const& sweep : sweeps_)
      for (int form = 0; form < sweep.form_count; ++form) entries_.push_back({&sweep, form, {}});
  }

  void add_to(std::vector<std::function<void()>>& alternatives) const {
    auto* const sums = static_cast<std::byte*>(memory_.back().data());
    for (auto const& e : entries_)
      alternatives.emplace_back(
          [this, e, sums] { e.sweep->run[static_cast<std::size_t>(e.form)](n_, arrays_, sums); });
  }
  /// @param timings of the alternatives, in order
  void keep(std::vector<Timing> const& timings) {
    for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].timing = timings[i];
  }
  std::size_t count() const { return entries_.size(); }

  /// Bytes per second of the best loop over the arrays of all sweeps, one after the other.
  double rate_of(std::vector<Sweep> const& sweeps) const {
    double bytes = 0.0, seconds = 0.0;
    for (auto const& sweep : sweeps) {
      bytes += sweep.streams.bytes();
      seconds += sweep.streams.bytes() / best(sweep.lines);
    }
    return bytes / seconds;
  }
  /// Returns the best rate of triad, copy and read-modify-write.
  double best_of_three() const {
    return std::max({best(triad), best(copy), best(read_modify_write)});
  }

  void print(std::vector<std::pair<std::string, std::int64_t>> const& fields) const {
    for (auto const& e : entries_) {
      double const bytes = e.sweep->lines.bytes() * static_cast<double>(n_);
      print_line({name_of(e.sweep->lines) + forms[e.form].suffix, bytes, e.timing,
                  best(e.sweep->lines), best_of_three()},
                 fields);
    }
  }

  struct Line {
    std::string name;
    double bytes;
    Timing timing;
    double limit, best_of_three;  ///< bytes per second
  };
  static void print_line(Line const& of,
                         std::vector<std::pair<std::string, std::int64_t>> const& fields) {
    double const rate = of.bytes / of.timing.median;
    ConfigTree line = ConfigTree::object();
    line.set("metric", of.name).set("value", rate / of.limit).set("num", rate * 1e-9);
    line.set("den", of.limit * 1e-9).set("over_best", rate / of.best_of_three);
    line.set("seconds", of.timing.median).set("bytes", of.bytes);
    line.set("spread", (of.timing.worst - of.timing.best) / of.timing.median);
    line.set("threads", memory::Runtime::threads());
    for (auto const& [name, value] : fields) line.set(name, value);
    std::printf("%s\n", line.dump().c_str());
  }

 private:
  struct Entry {
    Sweep const* sweep;
    int form;
    Timing timing;
  };

  std::size_t index_of(Streams const& lines) const {
    std::size_t k = 0;
    while (k < sweeps_.size() && !(sweeps_[k].lines == lines)) ++k;
    return k;
  }
  double best(Streams const& lines) const {
    double rate = 0.0;
    for (auto const& e : entries_)
      if (e.sweep->lines == lines)
        rate = std::max(rate, lines.bytes() * static_cast<double>(n_) / e.timing.median);
    return rate;
  }

  std::int64_t n_;
  std::vector<Sweep> sweeps_;
  std::vector<memory::Buffer> memory_;
  Arrays arrays_{};
  std::vector<Entry> entries_;
};

/// Times plain loops and @p metrics in turns and prints a JSON line for each: `value` is its rate
/// over that of the best loop over the same arrays, `over_best` over the best of triad, copy and
/// read-modify-write.
inline void report(std::int64_t n, std::vector<Metric> const& metrics, int rounds,
                   std::vector<std::pair<std::string, std::int64_t>> const& fields) {
  Baselines baselines(n, metrics);
  std::vector<std::function<void()>> alternatives;
  baselines.add_to(alternatives);
  for (auto const& metric : metrics) alternatives.push_back(metric.work);
  auto const timings = interleaved(alternatives, rounds);
  baselines.keep(timings);
  baselines.print(fields);
  for (std::size_t i = 0; i < metrics.size(); ++i) {
    auto const& metric = metrics[i];
    double const bytes =
        metric.bytes > 0.0 ? metric.bytes : metric.bytes_per_element() * static_cast<double>(n);
    Baselines::print_line({metric.name, bytes, timings[baselines.count() + i],
                           baselines.rate_of(metric.sweeps), baselines.best_of_three()},
                          fields);
  }
}

}  // namespace tessera::bench
