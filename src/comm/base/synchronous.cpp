#include "tessera/comm/base/synchronous.hpp"

#include <utility>

namespace tessera::comm {
namespace {

thread_local bool waits = false;

}  // namespace

SynchronousCalls::SynchronousCalls() : before_(std::exchange(waits, true)) {}
SynchronousCalls::~SynchronousCalls() { waits = before_; }
bool SynchronousCalls::active() { return waits; }

}  // namespace tessera::comm
