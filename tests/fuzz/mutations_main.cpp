/// mutations TARGET --runs N [--seed S] [--findings DIR]   the target's seeds and stored findings,
/// then seeded mutations of them mutations TARGET FILE...                                these
/// bytes, to see a finding again mutations seeds DIR                                     writes
/// DIR/<target>/<number>, for libFuzzer
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "fuzz.hpp"

namespace {

namespace fs = std::filesystem;
using namespace tessera;

constexpr unsigned seconds_for_one = 20;
constexpr rlim_t most_memory = rlim_t{1} << 30;

std::string_view current;
char finding[256];

/// What was read when the program ended, for the next person.
void save_current(int number) {
  int const out = ::open(finding, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool const written = out >= 0 && ::write(out, current.data(), current.size()) ==
                                       static_cast<ssize_t>(current.size());
  char const* text = written ? "the bytes are in " : "the bytes could not be kept in ";
  for (char const* part : {number == SIGALRM ? "an endless loop; " : "the reader crashed; ", text,
                           static_cast<char const*>(finding), "\n"})
    if (::write(2, part, std::strlen(part)) < 0) break;
  std::signal(number == SIGALRM ? SIGABRT : number, SIG_DFL);
  ::raise(number == SIGALRM ? SIGABRT : number);
}

void run(fuzz::Target const& target, std::string const& bytes) {
  current = bytes;
  ::alarm(seconds_for_one);
  target.run(bytes);
  ::alarm(0);
}

class Mutator {
 public:
  Mutator(std::vector<std::string> seeds, std::uint64_t seed)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string next() {
    std::string bytes = seeds_[below(seeds_.size())];
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

  void change(std::string& bytes) {
    static constexpr std::string_view extremes[] = {"0",
                                                    "-1",
                                                    "1",
                                                    "255",
                                                    "65536",
                                                    "2147483647",
                                                    "2147483648",
                                                    "4294967296",
                                                    "9223372036854775807",
                                                    "-9223372036854775808",
                                                    "1e308",
                                                    "null",
                                                    "\"\"",
                                                    "[]",
                                                    "{}",
                                                    "true"};
    if (bytes.empty()) bytes = "x";
    std::size_t const at = below(bytes.size()), length = std::min(1 + below(16), bytes.size() - at);
    switch (below(9)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random_());
        break;
      case 2:
        bytes[at] = "\x00\x01\x7f\x80\xff\"{}[],:.(tRQb"[below(18)];
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), length));
        break;
      case 5:
        splice(bytes, at);
        break;
      case 6:
        number(bytes, at, extremes[below(std::size(extremes))]);
        break;
      case 7:
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                    std::min<std::size_t>(8, bytes.size() - at), below(2) ? '\xff' : '\0');
        break;
      default:
        if (below(8) == 0) bytes.resize(at);
    }
  }
  void splice(std::string& bytes, std::size_t at) {
    std::string const& other = seeds_[below(seeds_.size())];
    std::size_t const from = below(other.size());
    bytes.replace(at, std::min<std::size_t>(bytes.size() - at, 64),
                  other.substr(from, 1 + below(64)));
  }
  /// The next run of digits becomes another number, or another value.
  static void number(std::string& bytes, std::size_t at, std::string_view value) {
    auto const first = bytes.find_first_of("0123456789", at);
    if (first == std::string::npos) return;
    bytes.replace(
        first, std::min(bytes.find_first_not_of("0123456789", first), bytes.size()) - first, value);
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

std::string read(fs::path const& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int mutate(fuzz::Target const& target, std::int64_t runs, std::uint64_t seed,
           fs::path const& findings) {
  auto pool = fuzz::seeds(target.name);
  TESSERA_VALIDATE(!pool.empty(), InternalError, "no seeds for ", target.name);
  std::size_t const made = pool.size();
  if (fs::is_directory(findings / target.name))
    for (auto const& entry : fs::directory_iterator(findings / target.name))
      pool.push_back(read(entry.path()));
  for (auto const& bytes : pool) run(target, bytes);
  auto const start = std::chrono::steady_clock::now();
  std::size_t const stored = pool.size() - made;
  Mutator mutator(std::move(pool), seed);
  for (std::int64_t i = 0; i < runs; ++i) run(target, mutator.next());
  double const seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "%s: %zu seeds, %zu stored findings, %lld mutations (seed %llu), %.0f a second, peak %ld "
      "MiB\n",
      std::string(target.name).c_str(), made, stored, static_cast<long long>(runs),
      static_cast<unsigned long long>(seed), static_cast<double>(runs) / seconds,
      usage.ru_maxrss / 1024);
  return 0;
}

void write_seeds(fs::path const& directory) {
  for (auto const& target : fuzz::targets()) {
    fs::create_directories(directory / target.name);
    auto const all = fuzz::seeds(target.name);
    for (std::size_t i = 0; i < all.size(); ++i)
      std::ofstream(directory / target.name / concat("seed-", i), std::ios::binary) << all[i];
  }
}

int main_with(std::vector<std::string> const& words) {
  TESSERA_VALIDATE(words.size() >= 2, UsageError,
                   "say what: TARGET --runs N, TARGET FILE..., or seeds DIR");
  if (words[0] == "seeds") return write_seeds(words[1]), 0;
  auto const& target = fuzz::find_target(words[0]);
  std::snprintf(finding, sizeof finding, "finding-%s", words[0].c_str());
  std::int64_t runs = -1;
  std::uint64_t seed = 1;
  fs::path findings;
  for (std::size_t i = 1; i < words.size(); ++i) {
    bool const has_value = i + 1 < words.size();
    if (words[i] == "--runs" && has_value)
      runs = std::stoll(words[++i]);
    else if (words[i] == "--seed" && has_value)
      seed = std::stoull(words[++i]);
    else if (words[i] == "--findings" && has_value)
      findings = words[++i];
    else
      run(target, read(words[i]));
  }
  return runs < 0 ? 0 : mutate(target, runs, seed, findings);
}

}  // namespace

int main(int argc, char** argv) {
  for (int const number : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM})
    std::signal(number, save_current);
#ifndef __SANITIZE_ADDRESS__
  rlimit const bound{most_memory, most_memory};
  (void)setrlimit(RLIMIT_DATA, &bound);
#endif
  try {
    return main_with({argv + 1, argv + argc});
  } catch (Error const& e) {
    std::fprintf(stderr, "mutations: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
