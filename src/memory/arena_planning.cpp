#include "tessera/memory/arena_planning.hpp"

namespace tessera::memory {
namespace {

thread_local int scopes = 0;

}  // namespace

ArenaPlanning::ArenaPlanning() { ++scopes; }
ArenaPlanning::~ArenaPlanning() { --scopes; }
bool ArenaPlanning::active() { return scopes > 0; }

}  // namespace tessera::memory
