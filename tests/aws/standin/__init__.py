"""A stand-in of AWS for tests: moto with a CloudFormation, an FSx and capacity reservations of our own, which create
what they say, take their time, fail where AWS fails, and can be told to fail. What only it has seen is listed in
docs/up.md."""
