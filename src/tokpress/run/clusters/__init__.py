"""Where workers run. Mechanism only: they are started, told, listened to and ended; what becomes of a unit is `scheduler`'s.

In: orders. Out: what workers say, and that they ended.

    base       the contract
    inline     one worker inside this process, for small inputs and for standard input
    processes  worker processes on this machine
    serve      the life of such a process
"""
