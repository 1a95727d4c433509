#pragma once
/// Planning: finding out how much memory a pass needs without allocating it.

namespace tessera::memory {

/// An arena that this thread makes during the scope has no memory: its views have addresses that
/// nothing may access, and Arena::peak() says how many bytes the same allocations need.
class ArenaPlanning {
 public:
  ArenaPlanning();
  ~ArenaPlanning();
  ArenaPlanning(ArenaPlanning const&) = delete;
  ArenaPlanning& operator=(ArenaPlanning const&) = delete;
  static bool active();
};

}  // namespace tessera::memory
