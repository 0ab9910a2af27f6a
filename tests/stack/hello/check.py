from greet import greet

assert greet("Ada").lower().startswith("hello"), greet("Ada")
print("check passed:", greet("Ada"))
