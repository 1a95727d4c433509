#include "tessera/memory/planning.hpp"

namespace tessera::memory {
namespace {

thread_local int arena_scopes = 0, buffer_scopes = 0;

}  // namespace

ArenaPlanning::ArenaPlanning() { ++arena_scopes; }
ArenaPlanning::~ArenaPlanning() { --arena_scopes; }
bool ArenaPlanning::active() { return arena_scopes > 0; }

BufferPlanning::BufferPlanning() { ++buffer_scopes; }
BufferPlanning::~BufferPlanning() { --buffer_scopes; }
bool BufferPlanning::active() { return buffer_scopes > 0; }

}  // namespace tessera::memory
