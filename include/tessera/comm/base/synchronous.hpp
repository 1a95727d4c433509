#pragma once
/// Collectives whose caller waits for each of them.

namespace tessera::comm {

/// While it lives, this thread waits for each operation that it starts before it does anything
/// else. On the host such an operation runs in the calling thread where no other is in flight:
/// handing it to the communication thread and back costs two context switches, more than a small
/// operation takes. Errors and the order of operations are the same.
class SynchronousCalls {
 public:
  SynchronousCalls();
  ~SynchronousCalls();
  SynchronousCalls(SynchronousCalls const&) = delete;
  SynchronousCalls& operator=(SynchronousCalls const&) = delete;

  /// Of this thread.
  static bool active();

 private:
  bool before_;
};

}  // namespace tessera::comm
