#include "tessera/comm/base/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/exact_sum.hpp"

namespace tessera::comm {
namespace {

template <class T>
memory::TensorView view_of(std::vector<T>& values) {
  return {values.data(), dtype_of<T>(), {static_cast<std::int64_t>(values.size())}};
}

template <class T>
T reduce_one(Collectives& comm, T value, ReduceOp op) {
  std::vector<T> values{value};
  SynchronousCalls const synchronous;
  comm.wait(comm.all_reduce(view_of(values), op, {}));
  return values[0];
}

memory::TensorView bytes_of(std::string& text) {
  return {text.data(), Dtype::uint8, {static_cast<std::int64_t>(text.size())}};
}

}  // namespace

bool agree(Collectives& comm, bool ok) {
  return reduce_one<std::int32_t>(comm, ok ? 1 : 0, ReduceOp::min) != 0;
}

double all_reduce_value(Collectives& comm, double value, ReduceOp op) {
  return reduce_one(comm, value, op);
}
std::int64_t all_reduce_value(Collectives& comm, std::int64_t value, ReduceOp op) {
  return reduce_one(comm, value, op);
}

void all_reduce_values(Collectives& comm, std::vector<double>& values, ReduceOp op) {
  SynchronousCalls const synchronous;
  comm.wait(comm.all_reduce(view_of(values), op, {}));
}

void all_reduce_sum(Collectives& comm, ExactSum& sum) {
  SynchronousCalls const synchronous;
  sum.carry();
  memory::TensorView const digits(sum.data().data(), Dtype::int64,
                                  {static_cast<std::int64_t>(ExactSum::digits)});
  comm.wait(comm.all_reduce(digits, ReduceOp::sum, {}));
}

std::string broadcast_bytes(Collectives& comm, std::string bytes, int root) {
  SynchronousCalls const synchronous;
  std::vector<std::int64_t> length{static_cast<std::int64_t>(bytes.size())};
  comm.wait(comm.broadcast(view_of(length), root, {}));
  bytes.resize(static_cast<std::size_t>(length[0]));
  if (!bytes.empty()) comm.wait(comm.broadcast(bytes_of(bytes), root, {}));
  return bytes;
}

namespace {

/// "+answer", or "-code text" for an error: exit code and message.
std::string told(std::function<std::string()> const& work) {
  try {
    return "+" + work();
  } catch (Error const& e) {
    return concat("-", static_cast<int>(e.code()), " ", e.what());
  } catch (std::exception const& e) {
    Error const error = to_error(e);
    return concat("-", static_cast<int>(error.code()), " ", error.what());
  }
}

std::string understood(std::string const& answer) {
  if (answer[0] == '+') return answer.substr(1);
  std::size_t const space = answer.find(' ');
  throw Error(static_cast<ExitCode>(std::stoi(answer.substr(1, space))), answer.substr(space + 1));
}

}  // namespace

std::string broadcast_from_root(Collectives& comm, std::function<std::string()> const& work) {
  return understood(broadcast_bytes(comm, comm.rank() == 0 ? told(work) : "", 0));
}

void run_on_ranks(Collectives& comm, std::function<void()> const& work) {
  run_on_ranks(comm, true, work);
}

void run_on_ranks(Collectives& comm, bool takes_part, std::function<void()> const& work) {
  std::string const answer = takes_part ? told([&] { return work(), ""; }) : "+";
  if (agree(comm, answer[0] == '+')) return;
  std::string first;
  for (auto const& text : gather_bytes(comm, answer, 0))
    if (first.empty() && text[0] == '-') first = text;
  understood(broadcast_bytes(comm, first, 0));
}

std::vector<std::string> gather_bytes(Collectives& comm, std::string const& bytes, int root) {
  SynchronousCalls const synchronous;
  bool const is_root = comm.rank() == root;
  auto const ranks = static_cast<std::size_t>(comm.size());
  std::vector<std::int64_t> length{static_cast<std::int64_t>(bytes.size())},
      lengths(is_root ? ranks : 0);
  comm.wait(comm.gather(view_of(length), view_of(lengths), root, {}));
  auto const longest = static_cast<std::size_t>(all_reduce_value(comm, length[0], ReduceOp::max));

  std::string padded = bytes, all(is_root ? longest * ranks : 0, '\0');
  padded.resize(longest);
  if (longest > 0) comm.wait(comm.gather(bytes_of(padded), bytes_of(all), root, {}));
  std::vector<std::string> out;
  for (std::size_t q = 0; is_root && q < ranks; ++q)
    out.push_back(all.substr(q * longest, static_cast<std::size_t>(lengths[q])));
  return out;
}

namespace {

thread_local bool waits = false;

}  // namespace

SynchronousCalls::SynchronousCalls() : before_(std::exchange(waits, true)) {}
SynchronousCalls::~SynchronousCalls() { waits = before_; }
bool SynchronousCalls::active() { return waits; }

}  // namespace tessera::comm
